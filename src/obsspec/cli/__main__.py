from obsspec.cli import main

main()

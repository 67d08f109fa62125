def sql_hypotheses():
    return ()

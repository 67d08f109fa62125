"""Vocabulary of the generator: short common words, so that a small model can copy them."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WORDS = _words(
    """
    apple bread chair cloud dance eagle field glass green heart house juice knife lemon light metal money month
    mouse music night ocean onion paper peach piano plant plate queen radio river robot salad shirt smile snake
    space spoon stone storm sugar table tiger train truck water whale wheel white world zebra amber baker beach
    berry black blaze block board brick brown brush cabin camel candy cedar chess clock coast coral crane cream
    crown daisy ember fence flame flute frost fruit ghost giant grape grass honey horse hotel ivory jewel koala
    lake lamp leaf lion lunar maple marsh mango melon mint moss north novel olive orbit otter panda pearl pilot
    pine plum polar pond prize quilt raven red blue gold pink gray rain ridge rope rose sail salt sand seed shell
    silk sky snow south star steel sun sword tea toast tower trail tree tulip valley velvet violet wagon west
    wind wolf wood wool yard east bell bird boat bone book bowl cake card coin corn crow deer desk door drum duck
    farm fish flag frog gate goat hill iron jade king kite moon nest
    """
)

STEMS = _words(
    """
    notes list data names items report draft backup result output input words memo plan todo letter story index
    summary records copy final archive page text sample inbox stock fruits colors pets tools books songs teams
    towns plants parts guests orders tasks ideas facts rules links scores votes
    """
)

DIRECTORIES = _words("docs old new src work keep saved files logs temp store box shared public drafts lib")

NAMES = _words(
    """
    anna ben carl dora emma finn gina hugo iris jack kate leo maya nina omar paul rosa sara tom vera will zoe
    alice bob david ella frank grace henry julia kevin laura mark nora oscar peter ruth simon tina victor
    """
)

CITIES = _words("paris rome oslo cairo lima tokyo delhi berlin madrid vienna boston dublin prague lisbon")

KEYS = _words("port host user mode level size color theme debug limit speed depth name path retry cache width height")

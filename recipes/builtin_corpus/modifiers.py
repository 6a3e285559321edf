"""Adjectives, adverbs and expressions of time: the words that are neither noun nor verb.

Adjectives have one line each: English | German | the tags of the nouns that it may describe | notes. A minus excludes a
tag. The notes are the comparatives, English/German, for the adjectives that are compared.
"""

from dataclasses import dataclass

from builtin_corpus.tables import read_rows

ADJECTIVES = """
old | alt | person animal clothing vehicle furniture device readable small bag opening building bridge tree
    instrument city village umbrella -child -mouse | older/älter
young | jung | person animal -grandmother -grandfather -mouse -boss | younger/jünger
new | neu | clothing vehicle furniture device readable small bag opening building instrument bridge umbrella watch
    ball doll boss colleague neighbor teacher pupil secretary idea plan contract song movie rule word
big | groß | animal vehicle furniture bag building city garden park garage-door window suitcase fruit kitchen
    living-room balcony apartment pot vase tree cake pizza | bigger/größer
small | klein | child animal vehicle furniture bag building city village garden park window lake fruit kitchen
    bedroom bathroom balcony apartment vase tree gift mistake doll | smaller/kleiner
good | gut | job student friend neighbor readable restaurant hotel café idea plan answer movie concert song report
    article dish bread wine cheese dog
bad | schlecht | movie concert idea plan answer restaurant hotel student
friendly | freundlich | person dog -king -prince
nice | nett | person -king -queen
famous | berühmt | author painter actor actress singer musician scientist chef museum castle song poem city restaurant
clever | klug | person dog fox
intelligent | intelligent | student scientist pupil doctor lawyer boy girl
strong | stark | man firefighter boy horse bear lion elephant coffee
tired | müde | person -king
hungry | hungrig | person animal -butterfly -bee -king -queen
thirsty | durstig | person horse dog cow elephant -king -queen
sick | krank | kin child patient neighbor colleague teacher animal -butterfly -bee -prince -princess
happy | glücklich | person -patient
sad | traurig | person -judge
nervous | nervös | student pupil patient actor actress singer musician
polite | höflich | person -king -queen
curious | neugierig | child journalist tourist cat dog neighbor monkey
lazy | faul | pupil student cat donkey brother
brave | mutig | firefighter police-officer boy girl prince princess
rich | reich | man woman king uncle aunt neighbor lawyer
poor | arm | man woman artist student musician
funny | lustig | actor child movie story song monkey uncle friend
wild | wild | wild horse duck goose -mouse -butterfly -bee
dangerous | gefährlich | bear lion wolf snake street | more dangerous/gefährlicher
white | weiß | clothing vehicle furniture opening flower pet horse duck goose plate cup vase towel blanket house
black | schwarz | clothing vehicle furniture pet horse bag umbrella piano device
red | rot | clothing vehicle sofa armchair chair bag umbrella flower rose apple ball opening wine candle
blue | blau | clothing vehicle sofa armchair bag umbrella opening ball vase towel blanket pencil flower
green | grün | clothing car bicycle sofa armchair bag umbrella opening apple ball bottle vase pencil
yellow | gelb | outerwear shirt blouse dress skirt umbrella flower pencil vase ball
gray | grau | clothing vehicle furniture cat mouse donkey horse
brown | braun | clothing bag furniture horse dog bear pony
expensive | teuer | clothing vehicle furniture device watch ring instrument gift camera restaurant hotel apartment
    wine cell-phone vase -carpet | more expensive/teurer
cheap | billig | clothing vehicle furniture device hotel apartment bicycle ticket camera umbrella | cheaper/billiger
beautiful | schön | clothing flower garden park city village castle church beach song picture photo doll princess
    queen horse butterfly apartment poem bird vase lake ring watch rose | more beautiful/schöner
ugly | hässlich | tie carpet hat vase lamp sofa building -castle
modern | modern | kitchen office museum library hospital school factory apartment hotel computer washing-machine
    furniture theater
heavy | schwer | suitcase bag backpack table cupboard pot dictionary | heavier/schwerer
long | lang | letter novel report sentence word street bridge river coat dress skirt scarf snake trip poem contract |
    longer/länger
short | kurz | letter report sentence word dress skirt poem trip story | shorter/kürzer
tall | hoch | tall | taller/höher
high | hoch | mountain | higher/höher
fast | schnell | vehicle horse -truck | faster/schneller
slow | langsam | streetcar bus truck computer donkey | slower/langsamer
quiet | ruhig | street village hotel library garden beach room apartment -kitchen -bathroom -basement
dark | dunkel | forest basement street room suit coat church
warm | warm | outerwear sweater blanket bread milk room cap
cold | kalt | water milk beer lake sea bathroom soup
hot | heiß | coffee tea soup water stove
fresh | frisch | fruit ingredient baked orange-juice -sugar -honey -chocolate -rice -jam -birthday-cake
sweet | süß | apple pear cherry strawberry cake cookie wine jam
sour | sauer | lemon cherry apple
ripe | reif | fruit tomato -lemon
healthy | gesund | fruit salad carrot
delicious | lecker | dish cake cookie sausage pizza cheese apple-pie
dirty | schmutzig | clothing car bicycle truck window carpet towel plate glass kitchen bathroom knife fork spoon pot
    cup
empty | leer | bottle glass cup bag suitcase backpack wallet house cupboard shelf apartment train bus
full | voll | train bus stadium movie-theater beach suitcase
broken | kaputt | device bicycle car chair umbrella window watch camera bus
comfortable | bequem | armchair sofa bed chair | more comfortable/bequemer
interesting | interessant | readable text museum exhibition movie idea question course trip city job -key | more
    interesting/interessanter
boring | langweilig | readable text movie course meeting exercise concert | more boring/langweiliger
exciting | spannend | novel story movie soccer-game trip book | more exciting/spannender
difficult | schwierig | question exercise problem exam sentence word text -report | more difficult/schwieriger
easy | leicht | question exercise exam sentence | easier/leichter
important | wichtig | letter question meeting exam contract plan rule word idea | more important/wichtiger
useful | nützlich | dictionary map bicycle rule course coffee-machine textbook
right | richtig | answer word
wrong | falsch | answer word key
loud | laut | street concert printer washing-machine radio city train | louder/lauter
open | offen | opening
"""

FREQUENCY = """
often | oft
always | immer
sometimes | manchmal
rarely | selten
usually | meistens
"""
NEVER = ("never", "nie")

MANNER = """
quickly | schnell
slowly | langsam
quietly | leise
loudly | laut
well | gut
carefully | vorsichtig
alone | allein
beautifully | schön
hard | hart
badly | schlecht
"""

# English | German, by the tense that they go with.
TIMES = {
    "past": """
yesterday | gestern
yesterday morning | gestern Morgen
yesterday evening | gestern Abend
this morning | heute Morgen
last week | letzte Woche
last weekend | letztes Wochenende
""",
    "future": """
tomorrow | morgen
tomorrow morning | morgen früh
tomorrow evening | morgen Abend
this evening | heute Abend
next week | nächste Woche
next weekend | nächstes Wochenende
soon | bald
""",
    "present": """
every day | jeden Tag
every morning | jeden Morgen
every evening | jeden Abend
every week | jede Woche
every weekend | jedes Wochenende
every summer | jeden Sommer
in the morning | am Morgen
in the evening | am Abend
in the afternoon | am Nachmittag
at night | in der Nacht
on the weekend | am Wochenende
in summer | im Sommer
in winter | im Winter
""",
    "progressive": """
right now | gerade
now | jetzt
at the moment | im Moment
today | heute
""",
    "past long": """
last month | letzten Monat
last year | letztes Jahr
last summer | letzten Sommer
last winter | letzten Winter
""",
    "future long": """
next month | nächsten Monat
next year | nächstes Jahr
next summer | nächsten Sommer
next winter | nächsten Winter
""",
}

DAYS = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)
MONTHS = (
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
)

MEN = ["Paul", "Peter", "Jan", "Tim", "David", "Martin", "Simon", "Karl", "Oskar", "Leon", "Jakob", "Erik"]
WOMEN = ["Anna", "Maria", "Julia", "Emma", "Laura", "Lena", "Sophie", "Clara", "Nina", "Eva", "Lisa", "Paula"]
FAMILIES = ["Schmidt", "Weber", "Müller", "Fischer", "Wagner", "Becker", "Hoffmann", "Schneider"]

# Places without an article: "in" + dative of rest and "nach" of motion in German.
TOWNS = (
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("Munich", "München"),
    ("Cologne", "Köln"),
    ("Vienna", "Wien"),
    ("Zurich", "Zürich"),
    ("Paris", "Paris"),
    ("London", "London"),
    ("Rome", "Rom"),
    ("Prague", "Prag"),
)
COUNTRIES = (
    ("Germany", "Deutschland"),
    ("Austria", "Österreich"),
    ("Italy", "Italien"),
    ("France", "Frankreich"),
    ("Spain", "Spanien"),
    ("England", "England"),
    ("Poland", "Polen"),
    ("Greece", "Griechenland"),
    ("Sweden", "Schweden"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective in both languages; `tags` and `excluded` choose nouns, `comparative` is a pair or None."""

    english: str
    german: str
    tags: frozenset
    excluded: frozenset
    comparative: tuple | None

    def __str__(self):
        return self.english

    def fits(self, noun):
        return not self.tags.isdisjoint(noun.tags) and self.excluded.isdisjoint(noun.tags)


def parse_adjectives(table=ADJECTIVES):
    """Reads `ADJECTIVES` into a list of `Adjective`."""
    adjectives = []
    for english, german, words, *comparative in read_rows(table):
        words = words.split()
        adjectives.append(
            Adjective(
                english=english,
                german=german,
                tags=frozenset(word for word in words if not word.startswith("-")),
                excluded=frozenset(word[1:] for word in words if word.startswith("-")),
                comparative=tuple(comparative[0].split("/")) if comparative else None,
            )
        )
    return adjectives

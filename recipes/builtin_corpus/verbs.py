"""The verbs of the built-in corpus.

One line per verb and use: English | German | tags of the subject | frame.

English is the base form, with "/past" and "/gerund" where the rules of `english.py` would go wrong, then a particle.
German is the infinitive, with "|" after a separable particle, then the third person of the present where the vowel
changes, the participle where it is strong, and "sein" where that is the auxiliary of the perfect.

A frame says what the verb stands with. Tags after a colon choose the nouns:
    acc:  accusative object, always there        dat:  dative object, always there (`to`: English says "to ...")
    prep: "english/german/case:tags", a prepositional object
    dir:  a place as the goal of motion          loc:  a place where, always there
    where: a place where, sometimes there        in:   the same with "in", whatever the place says
    on:   a piece of furniture or a wall where   onto: the same as the goal of motion
    how:  adverbs of manner, sometimes there     with  sometimes a companion
    state: no progressive in English; positive: never negated; present: no past; definite: the subject is
    definite and no time is given; clock: with a time of day; chance: not done at will; the: a definite object;
    long: done over months or years, too, so that "last year" goes with it
In dir:, loc: and prep:, `towns`, `countries` and `home` stand for names without an article and "at home".
"""

from dataclasses import dataclass

from builtin_corpus.english import EnglishVerb
from builtin_corpus.german import GermanVerb
from builtin_corpus.tables import read_rows

VERBS = """
buy/bought | kaufen | person | acc:clothing,furniture,device,readable,bicycle,car,bag,umbrella,ticket,camera,present,
    instrument long
buy/bought | kaufen | adult | acc:food where:supermarket,market long
sell/sold | verkaufen | adult | acc:car,bicycle,motorcycle,truck,house,furniture,instrument,picture,horse,cow,pony
    long
look for | suchen | person | acc:lost,dog,cat,ball,doll chance
find/found | finden gefunden | person | acc:lost,dog,cat,ball,mushroom,letter,mistake chance
lose/lost | verlieren verloren | person | acc:lost,ball chance the
forget/forgot/forgetting | vergessen vergisst vergessen | person | acc:lost,word,rule,song,birthday-gift chance the
need | brauchen | person | acc:outerwear,device,bag,luggage,dictionary,textbook,map,ticket,bicycle,car,knife,towel,
    blanket,pencil state
have/had | haben | person | acc:pet,car,bicycle,instrument,clothing,device,house,idea,plan,problem,question,garden,
    secret state
clean | putzen | adult | acc:window,kitchen,bathroom,bicycle,stove,mirror,kitchen-window long the
repair | reparieren | technician man woman father grandfather | acc:car,bicycle,motorcycle,truck,device,door,bus,
    airplane long
cook | kochen | cook kin woman man | acc:soup,tomato-soup,potato,egg,rice,meat,carrot where:kitchen
bake | backen bäckt gebacken | cook kin woman girl | acc:baked,pizza where:kitchen
cut/cut/cutting | schneiden geschnitten | cook kin adult | acc:bread,cheese,onion,cake,tomato,carrot,sausage,meat,
    mushroom
peel | schälen | cook kin adult | acc:potato,carrot,apple,pear,banana,egg,onion
eat/ate | essen isst gegessen | person | acc:food,-butter,-sugar,-lemon,-onion,-honey,-jam,-birthday-cake
    where:eatery,kitchen,garden,balcony
eat/ate | fressen frisst gefressen | livestock rabbit pony monkey -cow | acc:apple,carrot,bread,banana,pear,
    strawberry,potato
eat/ate | fressen frisst gefressen | dog cat lion wolf bear fox | acc:meat,sausage,egg
drink/drank | trinken getrunken | adult | acc:beer,wine,coffee where:eatery,garden,balcony
drink/drank | trinken getrunken | person | acc:drink,-beer,-wine,-coffee where:eatery,kitchen,garden,balcony
taste | probieren | person | acc:dish,baked,cheese,jam,honey,chocolate
read/read | lesen liest gelesen | person | acc:readable,text where:library,living-room,garden,park,balcony
write/wrote | schreiben geschrieben | author person | acc:written where:office,library,living-room long
paint | malen | painter child person | acc:flower,tree,picture,horse,cat,sea,castle,apple-tree long
draw/drew | zeichnen | painter child person | acc:flower,tree,horse,cat,house,plan,map,bird long
hear/heard | hören | person | acc:music,bird,dog,wolf,bee,concert state chance
see/saw | sehen sieht gesehen | person | acc:animal,person,film,castle state
observe | beobachten | person | acc:animal where:zoo,forest,garden
feed/fed | füttern | person | acc:pet,livestock where:farm the
wash | waschen wäscht gewaschen | adult | acc:car,bicycle,shirt,blouse,sweater,dress,towel,blanket,dog,glass,plate
iron | bügeln | adult | acc:shirt,blouse,dress,skirt,suit where:living-room,bedroom the
carry | tragen trägt getragen | person | acc:luggage,bag,chair,mirror,picture,plate,child
wear/wore | tragen trägt getragen | person | acc:clothing
open | öffnen | person | acc:opening,bottle,letter,gift,suitcase,cupboard,bag
close | schließen geschlossen | person | acc:opening,cupboard,suitcase,book the
lock | ab|schließen abgeschlossen | person | acc:door,front-door,garage-door,bicycle,car,house the
break/broke | zerbrechen zerbricht zerbrochen | person cat | acc:vessel,plate,vase,mirror chance
build/built | bauen | adult | acc:house,bridge,cupboard,shelf,table long
plant | pflanzen | gardener kin adult | acc:plant where:garden,park long
pick | pflücken | person | acc:flower,apple,pear,cherry,strawberry,lemon,rose where:garden
rent | mieten | adult | acc:apartment,house,car,bicycle,motorcycle long
borrow | aus|leihen ausgeliehen | person | acc:loan long
learn | lernen | person | acc:language where:school,university long
speak/spoke | sprechen spricht gesprochen | person | acc:language state
understand/understood | verstehen verstanden | person | acc:task,lesson,text,letter,plan,answer state
solve | lösen | pupil student scientist child | acc:problem,exercise
answer | beantworten | person | acc:question,letter
correct | korrigieren | teacher adult | acc:mistake,exercise,sentence,article,report the
translate | übersetzen | student author adult | acc:text,letter,sentence,novel,word,contract long
order | bestellen | adult | acc:dish,drink,cake,chocolate-cake,apple-pie where:eatery
visit | besuchen | person | acc:person,museum,castle,exhibition,city,village,farm long
meet/met | treffen trifft getroffen | person | acc:person where:park,eatery,train-station,library,bus-stop
invite | ein|laden lädt eingeladen | person | acc:person
call | an|rufen angerufen | person | acc:person
pick up | ab|holen | adult | acc:person where:stop
greet | begrüßen | person | acc:person
know/knew | kennen gekannt | person | acc:person,city,song,rule,restaurant,answer,secret,story state
love | lieben | person | acc:kin,pet,sea,language,garden,flower,music state
like | mögen mag gemocht | person | acc:person,pet,drink,fruit,soup,pizza,cheese,novel,language,city,song state
admire | bewundern | person | acc:painter,author,singer,musician,actor,actress,castle,firefighter,picture,king,queen
    state
miss | vermissen | person | acc:kin,friend,pet,city,sea state
help | helfen hilft geholfen | person | dat:person
thank | danken | person | dat:person
congratulate | gratulieren | person | dat:person
follow | folgen sein | person dog cat | dat:person,car,bus
trust | vertrauen | person | dat:person state
belong to | gehören | vehicle instrument bag luggage camera house dictionary dog cat horse | dat:person state present
    definite
listen to | zu|hören | person | dat:person
examine | untersuchen | healer | acc:patient,child,boy,girl,man,woman where:hospital
wake/woke | wecken | person | acc:kin,child the
teach/taught | unterrichten | teacher | acc:pupil,student,language where:school,university long
give/gave | geben gibt gegeben | person | dat:person acc:readable,key,flower,fruit,toy,ticket,present,umbrella
show | zeigen | person | dat:person acc:pictorial,map,letter,garden,ticket,kitchen,plan,library,clothing
send/sent | schicken | person | dat:person acc:mail,present,photo,report
lend/lent | leihen geliehen | person | dat:person acc:loan,car,bicycle long
bring/brought | bringen gebracht | person | dat:person acc:drink,-beer,-wine,dish,mail,bill,flower,newspaper,suitcase
tell/told | erzählen | person | dat:person acc:tellable
explain | erklären | person | dat:person to acc:task,lesson,plan,mistake
recommend | empfehlen empfiehlt empfohlen | person | dat:person to acc:restaurant,hotel,movie,novel,museum,dish,book,
    wine,doctor
offer | an|bieten angeboten | adult | dat:person acc:drink,-beer,-wine,cake,chair,fruit,chocolate,cookie
describe | beschreiben beschrieben | person | dat:person to acc:picture,plan,problem,castle,house,mistake
give/gave back | zurück|geben gibt zurückgegeben | person | dat:person to acc:loan,key,umbrella,bicycle the
introduce | vor|stellen | person | dat:adult to acc:kin,friend
wait | warten | person | prep:for/auf/accusative:person,public where:stop
think/thought | denken gedacht | person | prep:of/an/accusative:kin,friend,trip,exam,wedding,sea,song
talk | reden | person | prep:about/über/accusative:movie,trip,wedding,problem,plan,film,exam,novel,text,person
laugh | lachen | person | prep:about/über/accusative:story,mistake,movie,answer,monkey,photo chance
dream | träumen | person | prep:of/von/dative:trip,castle,sea,wedding,car,horse,princess chance
play | spielen | child pet | prep:with/mit/dative:toy where:garden,park,living-room,playground
ask | bitten gebeten | person | acc:adult prep:for/um/accusative:bill,money,key,map,water,answer,towel
look | auf|passen | adult | prep:after/auf/accusative:child,pet,suitcase,bag
take/took part | teil|nehmen nimmt teilgenommen | person | prep:in/an/dative:meeting,course,exam,trip,wedding
work | arbeiten | adult | prep:on/an/dative:report,plan,article,novel,car,contract where:office long
warn | warnen | person | acc:person prep:about/vor/dative:dog,wolf,bear,snake,mistake,bee
work | arbeiten | job | where:work,garden,farm how:hard,quickly,slowly,alone,carefully long
sleep/slept | schlafen schläft geschlafen | person | where:bedroom,living-room,hotel how:well,badly
sleep/slept | schlafen schläft geschlafen | pet | where:kitchen,living-room,garden
play | spielen | child pet | where:garden,park,playground,beach,living-room,forest how:quietly,loudly,alone with
sing/sang | singen gesungen | person bird | how:beautifully,loudly,quietly,badly where:church,bathroom,garden,park
sing/sang | singen gesungen | person | acc:song where:church,school
dance | tanzen | person | where:kitchen,garden,living-room,beach,street how:beautifully,alone,well,badly with
laugh | lachen | person | how:loudly,quietly chance
cry | weinen | person | how:loudly,quietly where:kitchen,bedroom chance
smile | lächeln | person
shout | schreien geschrien | person | how:loudly where:garden,street chance
bark | bellen gebellt | dog | how:loudly where:garden,street chance
swim/swam/swimming | schwimmen geschwommen sein | person duck dog | in:lake,sea,river how:well,quickly,slowly,alone
    long
run/ran/running | laufen läuft gelaufen sein | person dog cat horse pony fox wolf goat |
    prep:through/durch/accusative:green,city,street,
    kitchen,house how:quickly,slowly
hike | wandern sein | person | prep:through/durch/accusative:forest,village how:alone with long
ride/rode | reiten geritten sein | adult child | prep:through/durch/accusative:forest,village,park how:quickly,
    slowly,well long
go/went | gehen gegangen sein | person | dir:culture,eatery,shop,work,park,playground,zoo,swimming-pool,stadium,room,
    stop,lake how:alone with
drive/drove | fahren fährt gefahren sein | adult | dir:stop,lake,sea,city,village,farm,towns,supermarket,hospital,
    office,hotel how:quickly,slowly,alone with long
fly/flew | fliegen geflogen sein | adult | dir:towns,countries how:alone with long
fly/flew | fliegen geflogen sein | flier | prep:over/über/accusative:house,garden,river,lake,forest,village,church
    how:quickly,slowly long
travel | reisen sein | adult | dir:towns,countries how:alone with long
move | um|ziehen umgezogen sein | adult | dir:towns,countries long
come/came | kommen gekommen sein | person | dir:birthday-party,wedding,concert,meeting,exhibition how:alone with
come/came | kommen gekommen sein | person | prep:from/aus/dative:towns,countries state present
come/came back | zurück|kommen zurückgekommen sein | person | prep:from/aus/dative:towns,countries,forest,city,
    museum,theater,office,school,hospital,park long
arrive | an|kommen angekommen sein | person public | loc:stop,towns,hotel clock chance
depart | ab|fahren fährt abgefahren sein | train bus ship streetcar | clock definite
get/got/getting up | auf|stehen aufgestanden sein | person | how:slowly,quickly,quietly clock
fall/fell asleep | ein|schlafen schläft eingeschlafen sein | person pet | on:sofa,bed,armchair how:quickly clock
    chance
wake/woke up | auf|wachen sein | person pet | clock chance
get/got/getting on | ein|steigen eingestiegen sein | person | prep:_/in/accusative:bus,train,streetcar,airplane
get/got/getting off | aus|steigen ausgestiegen sein | person | prep:_/aus/dative:bus,train,streetcar,airplane
stay | bleiben geblieben sein | person | loc:home,towns,hotel,bed,lodging,village how:alone with chance
live | wohnen | person | loc:lodging,towns how:alone state with
sit/sat/sitting | sitzen gesessen | person pet | on:sofa,bench,chair,carpet how:quietly,alone
lie/lay/lying | liegen gelegen | small -upright | on:surface,bed,sofa,carpet,shelf state present definite
stand/stood | stehen gestanden | upright | on:surface,shelf state present definite
hang/hung | hängen gehangen | hanging | on:wall state present definite
put/put/putting | legen | person | acc:flat onto:surface,bed,sofa,shelf
put/put/putting | stellen | person | acc:upright onto:surface,shelf
hang/hung | hängen gehängt | person | acc:hanging onto:wall
jump | springen gesprungen sein | child dog cat horse rabbit frog | prep:over/über/accusative:bench,table,chair,river
    how:quickly
jump | springen gesprungen sein | child dog duck frog | prep:into/in/accusative:lake,river,sea
climb | klettern sein | child monkey cat bear | prep:onto/auf/accusative:tree,table,chair,mountain,sofa how:slowly,
    quickly
bloom | blühen | flower apple-tree | where:garden,park how:beautifully definite
grow/grew | wachsen wächst gewachsen sein | plant | where:garden,park,forest how:slowly,quickly
begin/began/beginning | beginnen begonnen | event | clock definite state
end | enden | event | clock definite state
take/took place | statt|finden stattgefunden | concert wedding meeting exam birthday-party exhibition | loc:school,
    hotel,church,museum,university,city-hall,office,restaurant definite state
go/went shopping | ein|kaufen | adult | where:supermarket,market,city,department-store with
watch television | fern|sehen sieht ferngesehen | person | where:living-room,bedroom how:alone with
tidy up | auf|räumen | person | acc:kitchen,living-room,bedroom,basement,bathroom,desk,cupboard the
turn on | ein|schalten | person | acc:device the
turn off | aus|schalten | person | acc:device the
put/put/putting on | an|ziehen angezogen | person | acc:clothing,-headwear,-tie,-scarf
take/took off | aus|ziehen ausgezogen | person | acc:outerwear,suit,dress,sweater,shirt,-scarf
try on | an|probieren | person | acc:clothing,-tie where:department-store
throw/threw away | weg|werfen wirft weggeworfen | person | acc:letter,newspaper,magazine,bottle,ticket,photo,banana,
    report the
bring/brought along | mit|bringen mitgebracht | person | acc:baked,present,ball,guitar,violin,flute,salad,wine,child,
    potato-salad
take/took along | mit|nehmen nimmt mitgenommen | person | acc:umbrella,camera,dog,luggage,map,loan,towel the
pack | packen | person | acc:luggage,bag
unpack | aus|packen | person | acc:luggage,bag,gift,birthday-gift the
fill out | aus|füllen | person | acc:form the
sign | unterschreiben unterschrieben | adult | acc:contract,form,letter,bill
pay/paid | bezahlen | adult | acc:bill,ticket the
prepare | vor|bereiten vorbereitet | adult | acc:meeting,exam,wedding,birthday-party,trip,exhibition,course the
plan/planned/planning | planen | adult | acc:trip,wedding,birthday-party,concert,exhibition long
check | prüfen | adult | acc:contract,bill,answer,form,report,ticket the
photograph | fotografieren | tourist journalist person | acc:animal,building,mountain,flower,bridge long
use | benutzen | person | acc:device,dictionary,map,bicycle,camera,knife long the
win/won/winning | gewinnen gewonnen | child adult | acc:soccer-game chance long the
hide/hid/hiding | verstecken | person dog | acc:gift,birthday-gift,key,letter,ball,chocolate
chase | jagen | cat dog fox | acc:mouse,rabbit,bird,duck,goose
bite/bit/biting | beißen gebissen | dog snake horse | acc:person
notice | bemerken | person | acc:mistake,snake,guest,mouse,police-officer state chance
call off | ab|sagen | adult | acc:meeting,concert,trip,wedding the
celebrate | feiern | adult | acc:wedding where:hotel,garden,restaurant long the
weigh | wiegen gewogen | salesman saleswoman baker butcher | acc:meat,potato,apple,cheese,tomato,suitcase
save | retten | firefighter police-officer boy | acc:cat,child,dog,woman,horse
"""

# Verbs of saying and knowing take "dass" or "ob" and questions; the others an infinitive with "zu".
SPEAKING = """
say/said | sagen | that
believe | glauben | that
know/knew | wissen gewusst | that
hope | hoffen | that
hear/heard | hören | that
ask | fragen | whether
"""
INTENDING = """
try | versuchen
forget/forgot/forgetting | vergessen vergisst vergessen
promise | versprechen verspricht versprochen
decide | beschließen beschlossen
hope | hoffen
"""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb in both languages with one use of it.

    `subject` and the values of `frame` are tuples of tags; `prepositional` is (English, German, case) or None.
    """

    english: EnglishVerb
    german: GermanVerb
    subject: tuple = ()
    frame: dict = None
    prepositional: tuple | None = None
    flags: frozenset = frozenset()

    def __str__(self):
        return self.english.base


BE = Verb(
    EnglishVerb("be", "is", "was", "being"), GermanVerb.parse("sein ist gewesen sein"), flags=frozenset({"state"})
)
COST = Verb(EnglishVerb.parse("cost/cost"), GermanVerb.parse("kosten"), flags=frozenset({"state"}))
RAIN = Verb(EnglishVerb.parse("rain"), GermanVerb.parse("regnen"))
SNOW = Verb(EnglishVerb.parse("snow"), GermanVerb.parse("schneien"))
# "there is" is "es gibt" with an accusative.
EXIST = Verb(EnglishVerb("be", "is", "was", "being"), GermanVerb.parse("geben gibt gegeben"))
HAVE = Verb(EnglishVerb.parse("have/had"), GermanVerb.parse("haben"), flags=frozenset({"state"}))


def parse_verbs(table=VERBS):
    """Reads `VERBS` into a list of `Verb`, one per line."""
    verbs = []
    for english, german, subject, *tokens in read_rows(table):
        frame, flags, prepositional = {}, set(), None
        for token in tokens[0].split() if tokens else ():
            name, colon, tags = token.partition(":")
            if name == "prep":
                words, _, tags = tags.partition(":")
                prepositional = tuple(words.split("/"))
            if colon:
                frame[name] = tuple(tags.split(","))
            else:
                flags.add(name)
        verbs.append(
            Verb(
                english=EnglishVerb.parse(english),
                german=GermanVerb.parse(german),
                subject=tuple(subject.split()),
                frame=frame,
                prepositional=prepositional,
                flags=frozenset(flags),
            )
        )
    return verbs


def parse_clause_verbs(table):
    """Reads `SPEAKING` or `INTENDING` into (verb, conjunction or None)."""
    rows = [line.split(" | ") for line in table.strip().splitlines()]
    return [
        (Verb(EnglishVerb.parse(row[0]), GermanVerb.parse(row[1]), flags=frozenset({"state"})), *row[2:])
        for row in rows
    ]

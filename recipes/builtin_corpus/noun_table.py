"""The nouns of the built-in corpus.

One line per noun: English (with "/plural" where that is irregular) | article and German noun | German plural | notes.
A line in brackets opens a semantic class: the tags of all nouns below it, by which verbs and adjectives choose them.
A noun's English name (blanks as hyphens) is one of its tags too.

Notes, separated by blanks: `weak` (the noun takes its plural form in all cases but the nominative), `genitive=...`
(where the rule is wrong), `he`, `she` or `nobody` (the pronoun, where it does not follow the gender), `+tag`
(one more tag), `mass` (no plural, no indefinite article), and for places `on-an/zu`: the English preposition of rest,
the German one, and the German one of motion; without it a place is "in" + dative and "in" + accusative.
"""

NOUNS = """
[person adult job]
teacher | der Lehrer | Lehrer
student | der Student | Studenten | weak
doctor | der Arzt | Ärzte | +healer
dentist | der Zahnarzt | Zahnärzte | genitive=Zahnarztes +healer
nurse | die Krankenschwester | Krankenschwestern | +healer
engineer | der Ingenieur | Ingenieure | +technician
mechanic | der Mechaniker | Mechaniker | +technician
lawyer | der Anwalt | Anwälte
judge | der Richter | Richter
baker | der Bäcker | Bäcker | +cook
butcher | der Metzger | Metzger
chef | der Koch | Köche | genitive=Kochs +cook
gardener | der Gärtner | Gärtner
farmer | der Bauer | Bauern | weak
police officer | der Polizist | Polizisten | weak
firefighter | der Feuerwehrmann | Feuerwehrmänner | genitive=Feuerwehrmannes
waiter | der Kellner | Kellner
waitress | die Kellnerin | Kellnerinnen
salesman/salesmen | der Verkäufer | Verkäufer
saleswoman/saleswomen | die Verkäuferin | Verkäuferinnen
pilot | der Pilot | Piloten | weak
driver | der Fahrer | Fahrer
journalist | der Journalist | Journalisten | weak +author
writer | der Schriftsteller | Schriftsteller | +author
artist | der Künstler | Künstler | +painter
actor | der Schauspieler | Schauspieler
actress | die Schauspielerin | Schauspielerinnen
singer | der Sänger | Sänger
musician | der Musiker | Musiker
scientist | der Wissenschaftler | Wissenschaftler
secretary | die Sekretärin | Sekretärinnen
hairdresser | die Friseurin | Friseurinnen

[person adult]
man/men | der Mann | Männer
woman/women | die Frau | Frauen
guest | der Gast | Gäste
customer | der Kunde | Kunden | weak
patient | der Patient | Patienten | weak
tourist | der Tourist | Touristen | weak
boss | der Chef | Chefs | genitive=Chefs +friend
colleague | der Kollege | Kollegen | weak +friend
neighbor | der Nachbar | Nachbarn | weak +friend
friend | der Freund | Freunde | +friend
king | der König | Könige
queen | die Königin | Königinnen

[person child]
child/children | das Kind | Kinder | nobody
boy | der Junge | Jungen | weak
girl | das Mädchen | Mädchen | she
pupil | der Schüler | Schüler
prince | der Prinz | Prinzen | weak
princess | die Prinzessin | Prinzessinnen

[person adult kin single]
mother | die Mutter | Mütter
father | der Vater | Väter
grandmother | die Großmutter | Großmütter
grandfather | der Großvater | Großväter
husband | der Ehemann | Ehemänner | genitive=Ehemannes +spouse
wife/wives | die Ehefrau | Ehefrauen | +spouse

[person adult kin]
uncle | der Onkel | Onkel
aunt | die Tante | Tanten

[person kin sibling]
brother | der Bruder | Brüder
sister | die Schwester | Schwestern
son | der Sohn | Söhne | +child
daughter | die Tochter | Töchter | +child
nephew | der Neffe | Neffen | weak +child
niece | die Nichte | Nichten | +child

[animal pet]
dog | der Hund | Hunde
cat | die Katze | Katzen
rabbit | das Kaninchen | Kaninchen
bird | der Vogel | Vögel | +flier
pony | das Pony | Ponys | +mount

[animal livestock]
horse | das Pferd | Pferde | +mount
cow | die Kuh | Kühe
pig | das Schwein | Schweine
goat | die Ziege | Ziegen
donkey | der Esel | Esel | +mount
duck | die Ente | Enten | +flier
goose/geese | die Gans | Gänse | +flier

[animal wild]
mouse/mice | die Maus | Mäuse
bear | der Bär | Bären | weak
lion | der Löwe | Löwen | weak
elephant | der Elefant | Elefanten | weak
monkey | der Affe | Affen | weak
fox | der Fuchs | Füchse
wolf/wolves | der Wolf | Wölfe
frog | der Frosch | Frösche
snake | die Schlange | Schlangen
butterfly | der Schmetterling | Schmetterlinge | +flier
bee | die Biene | Bienen | +flier

[food piece fruit]
apple | der Apfel | Äpfel
pear | die Birne | Birnen
banana | die Banane | Bananen
cherry | die Kirsche | Kirschen
strawberry | die Erdbeere | Erdbeeren
lemon | die Zitrone | Zitronen

[food piece ingredient]
tomato/tomatoes | die Tomate | Tomaten
potato/potatoes | die Kartoffel | Kartoffeln
carrot | die Karotte | Karotten
onion | die Zwiebel | Zwiebeln
mushroom | der Pilz | Pilze
egg | das Ei | Eier
sausage | die Wurst | Würste

[food piece dish]
soup | die Suppe | Suppen
tomato soup | die Tomatensuppe | Tomatensuppen
potato salad | der Kartoffelsalat | Kartoffelsalate
salad | der Salat | Salate
pizza | die Pizza | Pizzen

[food piece baked]
cake | der Kuchen | Kuchen
apple pie | der Apfelkuchen | Apfelkuchen
chocolate cake | der Schokoladenkuchen | Schokoladenkuchen
birthday cake | der Geburtstagskuchen | Geburtstagskuchen
cookie | der Keks | Kekse

[food ingredient mass]
bread | das Brot | - | mass +baked
cheese | der Käse | - | mass
butter | die Butter | - | mass
meat | das Fleisch | - | mass
rice | der Reis | - | mass
honey | der Honig | - | mass
sugar | der Zucker | - | mass
chocolate | die Schokolade | - | mass
jam | die Marmelade | - | mass
fruit | das Obst | - | mass

[drink mass]
water | das Wasser | - | mass
milk | die Milch | - | mass
coffee | der Kaffee | - | mass
tea | der Tee | - | mass
beer | das Bier | - | mass
wine | der Wein | - | mass
apple juice | der Apfelsaft | - | mass
orange juice | der Orangensaft | - | mass

[thing clothing]
coat | der Mantel | Mäntel | +outerwear
winter coat | der Wintermantel | Wintermäntel | +outerwear
raincoat | der Regenmantel | Regenmäntel | +outerwear
jacket | die Jacke | Jacken | +outerwear
leather jacket | die Lederjacke | Lederjacken | +outerwear
sweater | der Pullover | Pullover
shirt | das Hemd | Hemden
blouse | die Bluse | Blusen | +hers
dress | das Kleid | Kleider | +hers
skirt | der Rock | Röcke | +hers
suit | der Anzug | Anzüge | +his
tie | die Krawatte | Krawatten | +his
hat | der Hut | Hüte | +headwear
cap | die Mütze | Mützen | +headwear
scarf/scarves | der Schal | Schals | genitive=Schals +outerwear

[thing vehicle]
car | das Auto | Autos | +road
truck | der Lastwagen | Lastwagen | +road
sports car | der Sportwagen | Sportwagen | +road
bicycle | das Fahrrad | Fahrräder
motorcycle | das Motorrad | Motorräder | +road

[thing vehicle public]
bus/buses | der Bus | Busse | genitive=Busses +road
train | der Zug | Züge | +fast
streetcar | die Straßenbahn | Straßenbahnen
taxi | das Taxi | Taxis | +road
ship | das Schiff | Schiffe
airplane | das Flugzeug | Flugzeuge | +fast

[thing furniture]
table | der Tisch | Tische | +surface
kitchen table | der Küchentisch | Küchentische | +surface
desk | der Schreibtisch | Schreibtische | +surface
chair | der Stuhl | Stühle | +surface +seat
armchair | der Sessel | Sessel | +seat
sofa | das Sofa | Sofas | +seat
bed | das Bett | Betten | +seat
cupboard | der Schrank | Schränke | +inside
kitchen cupboard | der Küchenschrank | Küchenschränke | +inside
shelf/shelves | das Regal | Regale
carpet | der Teppich | Teppiche
mirror | der Spiegel | Spiegel | +hanging
bench/benches | die Bank | Bänke | +seat

[thing device]
lamp | die Lampe | Lampen
television | der Fernseher | Fernseher
radio | das Radio | Radios
computer | der Computer | Computer
printer | der Drucker | Drucker
washing machine | die Waschmaschine | Waschmaschinen
coffee machine | die Kaffeemaschine | Kaffeemaschinen
heater | die Heizung | Heizungen
stove | der Herd | Herde
alarm clock | der Wecker | Wecker

[thing readable small flat]
book | das Buch | Bücher | +loan +present
textbook | das Schulbuch | Schulbücher | +loan
cookbook | das Kochbuch | Kochbücher | +loan +present
dictionary | das Wörterbuch | Wörterbücher | +loan
magazine | die Zeitschrift | Zeitschriften
newspaper | die Zeitung | Zeitungen
letter | der Brief | Briefe | +mail +written
postcard | die Postkarte | Postkarten | +mail +written
novel | der Roman | Romane | +present +written

[text written]
story | die Geschichte | Geschichten | +tellable
fairy tale | das Märchen | Märchen | +tellable
article | der Artikel | Artikel
poem | das Gedicht | Gedichte
report | der Bericht | Berichte

[thing small flat]
key | der Schlüssel | Schlüssel | +lost
car key | der Autoschlüssel | Autoschlüssel | +lost
house key | der Hausschlüssel | Hausschlüssel | +lost
photo | das Foto | Fotos | +pictorial
picture | das Bild | Bilder | +pictorial +hanging
map | die Landkarte | Landkarten | +hanging
ticket | die Fahrkarte | Fahrkarten | +lost
towel | das Handtuch | Handtücher
blanket | die Decke | Decken
knife/knives | das Messer | Messer
fork | die Gabel | Gabeln
spoon | der Löffel | Löffel
pencil | der Bleistift | Bleistifte | +loan
camera | die Kamera | Kameras | +loan +present +lost
cell phone | das Handy | Handys | +lost
wallet | der Geldbeutel | Geldbeutel | +lost

[thing small upright]
glass | das Glas | Gläser | +vessel
wine glass | das Weinglas | Weingläser | +vessel
cup | die Tasse | Tassen | +vessel
coffee cup | die Kaffeetasse | Kaffeetassen | +vessel
bottle | die Flasche | Flaschen | +vessel
plate | der Teller | Teller
pot | der Topf | Töpfe
vase | die Vase | Vasen | +present
candle | die Kerze | Kerzen | +present

[thing bag luggage]
bag | die Tasche | Taschen
suitcase | der Koffer | Koffer
backpack | der Rucksack | Rucksäcke

[thing]
gift | das Geschenk | Geschenke | +present
birthday gift | das Geburtstagsgeschenk | Geburtstagsgeschenke | +present
ball | der Ball | Bälle | +toy +present
doll | die Puppe | Puppen | +toy +present
umbrella | der Regenschirm | Regenschirme | +loan +lost
watch/watches | die Armbanduhr | Armbanduhren | +present +lost
ring | der Ring | Ringe | +present +lost

[thing instrument]
guitar | die Gitarre | Gitarren | +loan
piano | das Klavier | Klaviere
violin | die Geige | Geigen | +loan
flute | die Flöte | Flöten | +loan

[plant]
flower | die Blume | Blumen | +present
rose | die Rose | Rosen | +present
tree | der Baum | Bäume | +tall
apple tree | der Apfelbaum | Apfelbäume | +tall

[opening]
door | die Tür | Türen
front door | die Haustür | Haustüren
window | das Fenster | Fenster
kitchen window | das Küchenfenster | Küchenfenster
garage door | das Garagentor | Garagentore

[place building culture]
museum | das Museum | Museen
theater | das Theater | Theater
movie theater | das Kino | Kinos
library | die Bibliothek | Bibliotheken | +quiet
church/churches | die Kirche | Kirchen
castle | das Schloss | Schlösser | in-in/zu

[place building eatery]
restaurant | das Restaurant | Restaurants
café | das Café | Cafés
hotel | das Hotel | Hotels | +lodging

[place building shop]
supermarket | der Supermarkt | Supermärkte
bakery | die Bäckerei | Bäckereien
pharmacy | die Apotheke | Apotheken
department store | das Kaufhaus | Kaufhäuser
bookstore | die Buchhandlung | Buchhandlungen
market | der Markt | Märkte | at-auf/auf

[place building work]
school | die Schule | Schulen | at-in/in
university | die Universität | Universitäten | at-an/zu
hospital | das Krankenhaus | Krankenhäuser
office | das Büro | Büros
factory | die Fabrik | Fabriken
bank | die Bank | Banken | in-in/zu
city hall | das Rathaus | Rathäuser

[place building lodging]
house | das Haus | Häuser | in-in/zu +built
apartment | die Wohnung | Wohnungen

[place stop]
train station | der Bahnhof | Bahnhöfe | at-an/zu
airport | der Flughafen | Flughäfen | at-an/zu
bus stop | die Bushaltestelle | Bushaltestellen | at-an/zu
harbor | der Hafen | Häfen | at-an/zu

[place outdoors]
park | der Park | Parks | genitive=Parks +green
garden | der Garten | Gärten | +green +home
forest | der Wald | Wälder | +green +nature
playground | der Spielplatz | Spielplätze | on-auf/auf
beach/beaches | der Strand | Strände | on-an/an +nature
lake | der See | Seen | at-an/an +nature
sea | das Meer | Meere | at-an/an +nature +unique
mountain | der Berg | Berge | on-auf/auf +nature
river | der Fluss | Flüsse | at-an/zu +nature
zoo | der Zoo | Zoos
swimming pool | das Schwimmbad | Schwimmbäder | at-in/in
stadium | das Stadion | Stadien

[place area]
city | die Stadt | Städte | +lodging
village | das Dorf | Dörfer | +lodging
street | die Straße | Straßen | on-auf/auf
farm | der Bauernhof | Bauernhöfe | on-auf/zu +lodging
bridge | die Brücke | Brücken | on-auf/zu +built

[place room home]
kitchen | die Küche | Küchen
living room | das Wohnzimmer | Wohnzimmer
bedroom | das Schlafzimmer | Schlafzimmer
bathroom | das Badezimmer | Badezimmer
basement | der Keller | Keller
balcony | der Balkon | Balkone | on-auf/auf

[event single]
concert | das Konzert | Konzerte
movie | der Film | Filme | +film
wedding | die Hochzeit | Hochzeiten
meeting | die Besprechung | Besprechungen
exam | die Prüfung | Prüfungen
soccer game | das Fußballspiel | Fußballspiele
birthday party | die Geburtstagsfeier | Geburtstagsfeiern
exhibition | die Ausstellung | Ausstellungen
course | der Kurs | Kurse
trip | die Reise | Reisen

[idea]
question | die Frage | Fragen | +task
problem | das Problem | Probleme | +task
exercise | die Übung | Übungen | +task
rule | die Regel | Regeln | +lesson
sentence | der Satz | Sätze | +lesson
word | das Wort | Wörter | +lesson
mistake | der Fehler | Fehler
plan | der Plan | Pläne
idea | die Idee | Ideen
answer | die Antwort | Antworten
secret | das Geheimnis | Geheimnisse
song | das Lied | Lieder | +music

[paper]
bill | die Rechnung | Rechnungen
form | das Formular | Formulare
contract | der Vertrag | Verträge

[language mass]
German | das Deutsch | - | mass genitive=Deutsch
English | das Englisch | - | mass genitive=Englisch
French | das Französisch | - | mass genitive=Französisch
Spanish | das Spanisch | - | mass genitive=Spanisch
Italian | das Italienisch | - | mass genitive=Italienisch

[resource mass]
time | die Zeit | - | mass
money | das Geld | - | mass

[weather mass]
weather | das Wetter | - | mass
"""

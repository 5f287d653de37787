"""What the synthetic catalogue is written with: kinds of products, attributes, options. All invented, nothing
scraped."""

from dataclasses import dataclass

# fmt: off
SKIN = "paraben free|cruelty free|fragrance free|dermatologist tested|sensitive skin|dry skin|fine lines|anti aging|shea butter"
HAIR = "sulfate free|argan oil|coconut oil|damaged hair|natural hair|color treated hair|paraben free|tea tree|dry scalp|keratin treatment"
MOUTH = "fluoride free|teeth whitening|bad breath|sensitive teeth|fresh breath|oral hygiene|easy use|travel size|bpa free|eco friendly"
MAKEUP = "long lasting|highly pigmented|easy apply|cruelty free|water resistant|oil free|talc free|high quality|matte finish|rose gold"
FOOD = "gluten free|low sugar|non gmo|dairy free|high protein|keto friendly|certified organic|plant based|no artificial colors|shelf stable"
DRINK = "caffeine free|certified organic|low calorie|non gmo|sugar free|kosher certified|fair trade|gift basket|easy prepare"
ROOM = "easy assemble|easy clean|space saving|mid century|solid wood|storage space|living room|dining room|white finish|heavy duty"
BED = "machine washable|super soft|twin size|king size|memory foam|queen size|eco friendly|exquisite workmanship|double sided|long lasting"
KITCHEN = "dishwasher safe|bpa free|stainless steel|non stick|easy clean|leak proof|eco friendly|heavy duty|lead free|non slip"
GADGET = "fast charging|high speed|easy install|plug play|wireless bluetooth|noise cancelling|usb port|long battery life|aluminum alloy"
CASE = "tempered glass|wireless charging|dust proof|heavy duty|slim fit|non slip|case cover|carrying case|shock proof|easy install"
SCREEN = "ultra hd|high resolution|wall mounted|energy efficient|blu ray|stereo sound|motion detection|dual band|easy set up"
WEAR = "machine wash|slim fit|long sleeve|moisture wicking|cotton spandex|quick drying|relaxed fit|tummy control|elastic waist|hand wash"
SHOE = "rubber sole|memory foam insole|arch support|non slip|slip resistant|lace up|open toe|leather sole|arch cushioned|ankle strap"
BAG = "water resistant|carrying case|genuine leather|adjustable strap|light weight|high capacity|laptop compartment|zipper closure"

COLORS = "black|white|navy|grey|wine red|army green|light blue|blush pink|mustard yellow|teal|purple|khaki"
SIZES = "x-small|small|medium|large|x-large|xx-large|3x-large"
SHOE_SIZES = "6|6.5|7|7.5|8|8.5|9|9.5|10|11|12"
PACKS = "pack of 1|pack of 2|pack of 3|pack of 4|pack of 6|pack of 12"
OUNCES = "2 ounce|4 ounce|6 ounce|8 ounce|12 ounce|16 ounce|1 pound"
SCENTS = "lavender|citrus|unscented|eucalyptus|vanilla|ocean breeze|rose|cedar"
FLAVORS = "original|chocolate|vanilla|strawberry|sea salt|honey|peanut butter|cinnamon|mango|mixed berry"
BEDS = "twin|full|queen|king|california king"
FINISHES = "walnut|white|black|natural oak|rustic brown|espresso|weathered grey"
SHADES = "nude|coral|berry|classic red|mauve|copper|plum|peach"
LENGTHS = "3ft|6ft|10ft|15ft|25ft"
STORAGE = "32gb|64gb|128gb|256gb|512gb|1tb"
PHONES = "phone 11|phone 12|phone 12 pro|phone 13|phone 13 mini|phone 14 plus"
RUGS = "2 x 3 ft|3 x 5 ft|4 x 6 ft|5 x 8 ft|8 x 10 ft"
LITRES = "10l|20l|30l|40l"
INCHES = "24 inch|27 inch|32 inch|34 inch curved"
TIERS = "3 tier|4 tier|5 tier|6 tier"
CUPS = "8 cup|10 cup|12 cup|14 cup"


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of product: what it is called and searched for, where it stands, what it may have, and cost in dollars."""

    category: str
    path: str
    noun: str
    query: str
    attributes: str
    options: dict[str, str]
    low: float
    high: float


SORTS = (
    Sort("beauty", "Skin Care › Face", "Face Cream", "facial creams", SKIN, {"size": OUNCES}, 8, 45),
    Sort("beauty", "Skin Care › Face", "Face Serum", "face serums", SKIN, {"size": OUNCES, "scent": SCENTS}, 9, 60),
    Sort("beauty", "Skin Care › Body", "Body Lotion", "body lotions", SKIN, {"scent": SCENTS, "size": PACKS}, 6, 30),
    Sort("beauty", "Skin Care › Body", "Sugar Scrub", "body scrubs", SKIN, {"scent": SCENTS}, 7, 28),
    Sort("beauty", "Skin Care › Lips", "Lip Balm", "lip balms", SKIN, {"flavor name": FLAVORS, "size": PACKS}, 3, 18),
    Sort("beauty", "Hair Care › Wash", "Shampoo", "shampoos", HAIR, {"scent": SCENTS, "size": OUNCES}, 7, 38),
    Sort("beauty", "Hair Care › Wash", "Conditioner", "conditioners", HAIR, {"scent": SCENTS, "size": OUNCES}, 7, 38),
    Sort("beauty", "Hair Care › Treatments", "Hair Mask", "hair masks", HAIR, {"size": OUNCES}, 8, 42),
    Sort("beauty", "Oral Care › Brushing", "Toothbrush", "toothbrushes", MOUTH, {"color": COLORS, "size": PACKS}, 4, 35),
    Sort("beauty", "Oral Care › Brushing", "Toothpaste", "toothpastes", MOUTH, {"flavor name": FLAVORS, "size": PACKS}, 3, 20),
    Sort("beauty", "Makeup › Lips", "Lipstick", "lipsticks", MAKEUP, {"color": SHADES}, 5, 30),
    Sort("beauty", "Makeup › Eyes", "Eyeshadow Palette", "eyeshadow palettes", MAKEUP, {"color": SHADES}, 9, 55),
    Sort("grocery", "Snacks › Bars", "Granola Bar", "granola bars", FOOD, {"flavor name": FLAVORS, "size": PACKS}, 6, 40),
    Sort("grocery", "Snacks › Chips", "Vegetable Chips", "chips & crisps", FOOD, {"flavor name": FLAVORS, "size": PACKS}, 5, 32),
    Sort("grocery", "Snacks › Nuts", "Almonds", "roasted nuts", FOOD, {"flavor name": FLAVORS, "size": OUNCES}, 7, 45),
    Sort("grocery", "Pantry › Spreads", "Nut Butter", "nut butters", FOOD, {"flavor name": FLAVORS, "size": OUNCES}, 6, 29),
    Sort("grocery", "Pantry › Baking", "Pancake Mix", "baking mixes", FOOD, {"flavor name": FLAVORS}, 5, 26),
    Sort("grocery", "Pantry › Pasta", "Lentil Pasta", "pastas & noodles", FOOD, {"size": PACKS}, 4, 35),
    Sort("grocery", "Beverages › Tea", "Herbal Tea", "herbal teas", DRINK, {"flavor name": FLAVORS, "size": PACKS}, 4, 28),
    Sort("grocery", "Beverages › Coffee", "Ground Coffee", "ground coffees", DRINK, {"flavor name": FLAVORS, "size": OUNCES}, 8, 36),
    Sort("grocery", "Beverages › Water", "Sparkling Water", "sparkling waters", DRINK, {"flavor name": FLAVORS, "size": PACKS}, 5, 24),
    Sort("garden", "Furniture › Tables", "Coffee Table", "coffee tables", ROOM, {"color": FINISHES}, 60, 380),
    Sort("garden", "Furniture › Tables", "Console Table", "console tables", ROOM, {"color": FINISHES}, 55, 290),
    Sort("garden", "Furniture › Storage", "Bookcase", "bookcases", ROOM, {"color": FINISHES, "size": TIERS}, 45, 320),
    Sort("garden", "Furniture › Chairs", "Dining Chair", "dining chairs", ROOM, {"color": FINISHES, "size": PACKS}, 50, 420),
    Sort("garden", "Furniture › Beds", "Platform Bed", "bed frames", ROOM, {"color": FINISHES, "size": BEDS}, 110, 640),
    Sort("garden", "Bedding › Covers", "Throw Blanket", "throw blankets", BED, {"color": COLORS, "size": RUGS}, 15, 80),
    Sort("garden", "Bedding › Covers", "Duvet Cover", "duvet covers", BED, {"color": COLORS, "size": BEDS}, 25, 120),
    Sort("garden", "Bedding › Pillows", "Pillow", "bed pillows", BED, {"size": BEDS}, 14, 75),
    Sort("garden", "Decor › Rugs", "Area Rug", "area rugs", BED, {"color": COLORS, "size": RUGS}, 22, 260),
    Sort("garden", "Kitchen › Cookware", "Frying Pan", "frying pans", KITCHEN, {"color": COLORS}, 16, 95),
    Sort("garden", "Kitchen › Drinkware", "Water Bottle", "water bottles", KITCHEN, {"color": COLORS, "size": OUNCES}, 9, 48),
    Sort("garden", "Kitchen › Drinkware", "Coffee Maker", "coffee makers", KITCHEN, {"color": COLORS, "size": CUPS}, 25, 160),
    Sort("electronics", "Audio › Headphones", "Headphones", "over-ear headphones", GADGET, {"color": COLORS}, 18, 240),
    Sort("electronics", "Audio › Headphones", "Earbuds", "earbud headphones", GADGET, {"color": COLORS}, 12, 150),
    Sort("electronics", "Audio › Speakers", "Bluetooth Speaker", "portable speakers", GADGET, {"color": COLORS}, 15, 180),
    Sort("electronics", "Power › Chargers", "Wall Charger", "wall chargers", GADGET, {"color": COLORS, "size": PACKS}, 9, 55),
    Sort("electronics", "Power › Cables", "Charging Cable", "usb cables", GADGET, {"color": COLORS, "size": LENGTHS}, 5, 34),
    Sort("electronics", "Phones › Cases", "Phone Case", "cell phone cases", CASE, {"color": COLORS, "style": PHONES}, 7, 45),
    Sort("electronics", "Phones › Protection", "Screen Protector", "screen protectors", CASE, {"style": PHONES, "size": PACKS}, 5, 28),
    Sort("electronics", "Video › Screens", "Projector", "video projectors", SCREEN, {"color": COLORS}, 70, 480),
    Sort("electronics", "Video › Screens", "Monitor", "computer monitors", SCREEN, {"style": INCHES}, 95, 620),
    Sort("electronics", "Video › Cameras", "Security Camera", "security cameras", SCREEN, {"color": COLORS, "size": PACKS}, 28, 230),
    Sort("electronics", "Storage › Drives", "Flash Drive", "usb flash drives", GADGET, {"color": COLORS, "capacity": STORAGE}, 7, 110),
    Sort("fashion", "Women › Dresses", "Maxi Dress", "women's dresses", WEAR, {"color": COLORS, "size": SIZES}, 16, 70),
    Sort("fashion", "Women › Tops", "Blouse", "women's blouses", WEAR, {"color": COLORS, "size": SIZES}, 12, 48),
    Sort("fashion", "Women › Bottoms", "Leggings", "women's leggings", WEAR, {"color": COLORS, "size": SIZES}, 11, 52),
    Sort("fashion", "Men › Tops", "Polo Shirt", "men's polo shirts", WEAR, {"color": COLORS, "size": SIZES}, 13, 65),
    Sort("fashion", "Men › Tops", "Hoodie", "men's hoodies", WEAR, {"color": COLORS, "size": SIZES}, 18, 78),
    Sort("fashion", "Men › Bottoms", "Chino Pants", "men's pants", WEAR, {"color": COLORS, "size": SIZES}, 19, 84),
    Sort("fashion", "Shoes › Women", "Sandals", "women's sandals", SHOE, {"color": COLORS, "size": SHOE_SIZES}, 17, 92),
    Sort("fashion", "Shoes › Men", "Sneakers", "men's sneakers", SHOE, {"color": COLORS, "size": SHOE_SIZES}, 24, 140),
    Sort("fashion", "Shoes › Unisex", "House Slippers", "slippers", SHOE, {"color": COLORS, "size": SHOE_SIZES}, 11, 54),
    Sort("fashion", "Luggage › Packs", "Backpack", "backpacks", BAG, {"color": COLORS, "size": LITRES}, 20, 130),
    Sort("fashion", "Luggage › Bags", "Tote Bag", "tote bags", BAG, {"color": COLORS}, 14, 96),
)
ROOTS = {"beauty": "Beauty & Personal Care", "grocery": "Grocery & Gourmet Food", "garden": "Home & Kitchen",
         "electronics": "Electronics", "fashion": "Clothing, Shoes & Jewelry"}
SYLLABLES = ("al", "ber", "cor", "dan", "el", "fen", "gar", "hol", "ira", "jun", "kes", "lor", "mav", "nor", "osk", "pel", "quin", "ros",
             "sel", "tam", "ul", "ver", "wyn", "yar", "zel")
ENDINGS = ("ix", "ora", "well", "ton", "ely", "aro", "and", "en", "io", "ique")
AUDIENCES = ("for Everyday Use", "for Home and Travel", "for Women and Men", "for Beginners", "Gift Idea",
             "Classic Edition", "2 Year Warranty")
ASKS = ("Find me {wanted} {things}", "I am looking for {things} that are {wanted}", "I need {wanted} {things}",
        "I want to buy {things}, {wanted}", "Show me {wanted} {things}")
CLAIMS = ("Thoughtfully made with {attribute} in mind.", "Our customers like that it is {attribute}.", "Key feature: {attribute}.",
          "What sets it apart: {attribute}.", "Made to be {attribute}, day after day.")
FILLERS = ("Carefully packed and shipped within two days.", "Contact us with any question, we answer quickly.",
           "A good present for birthdays and holidays.", "Please allow small differences in color from screen to screen.",
           "Designed by a small team that tests every batch.")
PRAISE = (("As described", 5, "Does what it says, would buy again."), ("Good value", 4, "Nice for the price, arrived on time."),
          ("Okay", 3, "It works, though I expected a bit more."), ("Disappointed", 2, "Not what I had hoped for."))

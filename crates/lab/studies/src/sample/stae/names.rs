//! People, places and companies, combined from lists of common words.
//!
//! Invariants
//! - The same random numbers give the same names, on any machine.
//! - No two securities share a symbol.
//!
//! Leaves to others: the random numbers (`random.rs`), and the rows (`people.rs`, `market.rs`).

use super::super::random::Rng;

const FEMALE: [&str; 40] = [
    "Mary",
    "Patricia",
    "Jennifer",
    "Linda",
    "Elizabeth",
    "Barbara",
    "Susan",
    "Jessica",
    "Sarah",
    "Karen",
    "Lisa",
    "Nancy",
    "Sandra",
    "Ashley",
    "Emily",
    "Donna",
    "Michelle",
    "Carol",
    "Amanda",
    "Melissa",
    "Deborah",
    "Stephanie",
    "Rebecca",
    "Laura",
    "Helen",
    "Sharon",
    "Cynthia",
    "Kathleen",
    "Amy",
    "Angela",
    "Anna",
    "Ruth",
    "Brenda",
    "Pamela",
    "Nicole",
    "Katherine",
    "Samantha",
    "Christine",
    "Emma",
    "Maria",
];

const MALE: [&str; 40] = [
    "James",
    "Robert",
    "John",
    "Michael",
    "David",
    "William",
    "Richard",
    "Joseph",
    "Thomas",
    "Charles",
    "Christopher",
    "Daniel",
    "Matthew",
    "Anthony",
    "Mark",
    "Donald",
    "Steven",
    "Andrew",
    "Paul",
    "Joshua",
    "Kenneth",
    "Kevin",
    "Brian",
    "George",
    "Timothy",
    "Ronald",
    "Jason",
    "Edward",
    "Jeffrey",
    "Ryan",
    "Jacob",
    "Gary",
    "Nicholas",
    "Eric",
    "Jonathan",
    "Stephen",
    "Larry",
    "Justin",
    "Scott",
    "Carlos",
];

const LAST: [&str; 96] = [
    "Smith",
    "Johnson",
    "Williams",
    "Brown",
    "Jones",
    "Garcia",
    "Miller",
    "Davis",
    "Rodriguez",
    "Martinez",
    "Hernandez",
    "Lopez",
    "Gonzalez",
    "Wilson",
    "Anderson",
    "Thomas",
    "Taylor",
    "Moore",
    "Jackson",
    "Martin",
    "Lee",
    "Perez",
    "Thompson",
    "White",
    "Harris",
    "Sanchez",
    "Clark",
    "Ramirez",
    "Lewis",
    "Robinson",
    "Walker",
    "Young",
    "Allen",
    "King",
    "Wright",
    "Scott",
    "Torres",
    "Nguyen",
    "Hill",
    "Flores",
    "Green",
    "Adams",
    "Nelson",
    "Baker",
    "Hall",
    "Rivera",
    "Campbell",
    "Mitchell",
    "Carter",
    "Roberts",
    "Gomez",
    "Phillips",
    "Evans",
    "Turner",
    "Diaz",
    "Parker",
    "Cruz",
    "Edwards",
    "Collins",
    "Reyes",
    "Stewart",
    "Morris",
    "Morales",
    "Murphy",
    "Cook",
    "Rogers",
    "Gutierrez",
    "Ortiz",
    "Morgan",
    "Cooper",
    "Peterson",
    "Bailey",
    "Reed",
    "Kelly",
    "Howard",
    "Ramos",
    "Kim",
    "Cox",
    "Ward",
    "Richardson",
    "Watson",
    "Brooks",
    "Chavez",
    "Wood",
    "Bennett",
    "Gray",
    "Mendoza",
    "Ruiz",
    "Hughes",
    "Price",
    "Alvarez",
    "Castillo",
    "Sanders",
    "Patel",
    "Myers",
    "Long",
];

const STREETS: [&str; 32] = [
    "Main",
    "Oak",
    "Pine",
    "Maple",
    "Cedar",
    "Elm",
    "Washington",
    "Lake",
    "Hill",
    "Walnut",
    "Spring",
    "North",
    "Ridge",
    "Church",
    "Willow",
    "Mill",
    "Sunset",
    "Railroad",
    "Jefferson",
    "Center",
    "Forest",
    "River",
    "Highland",
    "Franklin",
    "Park",
    "Chestnut",
    "Meadow",
    "Harbor",
    "Lincoln",
    "Madison",
    "Orchard",
    "Prospect",
];

const STREET_KINDS: [&str; 8] = [
    "Street",
    "Avenue",
    "Road",
    "Drive",
    "Lane",
    "Court",
    "Boulevard",
    "Way",
];

/// City, state and the first three digits of its postal codes.
const CITIES: [(&str, &str, i64); 40] = [
    ("New York", "NY", 100),
    ("Los Angeles", "CA", 900),
    ("Chicago", "IL", 606),
    ("Houston", "TX", 770),
    ("Phoenix", "AZ", 850),
    ("Philadelphia", "PA", 191),
    ("San Antonio", "TX", 782),
    ("San Diego", "CA", 921),
    ("Dallas", "TX", 752),
    ("Austin", "TX", 787),
    ("Jacksonville", "FL", 322),
    ("San Jose", "CA", 951),
    ("Fort Worth", "TX", 761),
    ("Columbus", "OH", 432),
    ("Charlotte", "NC", 282),
    ("Indianapolis", "IN", 462),
    ("Seattle", "WA", 981),
    ("Denver", "CO", 802),
    ("Boston", "MA", 21),
    ("Nashville", "TN", 372),
    ("Portland", "OR", 972),
    ("Memphis", "TN", 381),
    ("Louisville", "KY", 402),
    ("Baltimore", "MD", 212),
    ("Milwaukee", "WI", 532),
    ("Albuquerque", "NM", 871),
    ("Tucson", "AZ", 857),
    ("Fresno", "CA", 937),
    ("Sacramento", "CA", 958),
    ("Atlanta", "GA", 303),
    ("Omaha", "NE", 681),
    ("Raleigh", "NC", 276),
    ("Miami", "FL", 331),
    ("Minneapolis", "MN", 554),
    ("Tulsa", "OK", 741),
    ("Tampa", "FL", 336),
    ("New Orleans", "LA", 701),
    ("Cleveland", "OH", 441),
    ("Pittsburgh", "PA", 152),
    ("Richmond", "VA", 232),
];

const MAIL_HOSTS: [&str; 5] = [
    "example.com",
    "example.net",
    "example.org",
    "mail.example.com",
    "post.example.net",
];

const COMPANY_FIRST: [&str; 48] = [
    "Allied",
    "American",
    "Apex",
    "Atlantic",
    "Beacon",
    "Blue Ridge",
    "Cardinal",
    "Cascade",
    "Central",
    "Citadel",
    "Coastal",
    "Continental",
    "Crescent",
    "Delta",
    "Eastern",
    "Evergreen",
    "Falcon",
    "First",
    "Frontier",
    "General",
    "Global",
    "Golden Gate",
    "Granite",
    "Great Lakes",
    "Harbor",
    "Horizon",
    "Independent",
    "Keystone",
    "Liberty",
    "Lone Star",
    "Meridian",
    "Midland",
    "Mountain",
    "National",
    "Northern",
    "Pacific",
    "Pinnacle",
    "Pioneer",
    "Prairie",
    "Premier",
    "Republic",
    "Royal",
    "Sierra",
    "Southern",
    "Summit",
    "Union",
    "United",
    "Western",
];

const COMPANY_SECOND: [&str; 40] = [
    "Aerospace",
    "Airlines",
    "Apparel",
    "Bancorp",
    "Biosciences",
    "Brands",
    "Broadcasting",
    "Builders",
    "Chemicals",
    "Communications",
    "Components",
    "Devices",
    "Diagnostics",
    "Electric",
    "Energy",
    "Financial",
    "Foods",
    "Freight",
    "Furniture",
    "Gas",
    "Genetics",
    "Health",
    "Instruments",
    "Insurance",
    "Logistics",
    "Materials",
    "Media",
    "Mining",
    "Motors",
    "Networks",
    "Paper",
    "Petroleum",
    "Pharmaceuticals",
    "Properties",
    "Semiconductor",
    "Software",
    "Steel",
    "Systems",
    "Technologies",
    "Water",
];

const COMPANY_FORMS: [&str; 6] = [
    "Inc.",
    "Corporation",
    "Company",
    "Holdings, Inc.",
    "Group, Inc.",
    "Limited",
];

const ACTIVITIES: [&str; 12] = [
    "designs, manufactures and markets",
    "develops and licenses",
    "operates a national network of",
    "is a leading supplier of",
    "distributes and services",
    "invests in and manages",
    "produces and sells",
    "provides integrated",
    "leases and maintains",
    "is engaged in the wholesale of",
    "researches and commercializes",
    "owns and operates",
];

const PRODUCTS: [&str; 16] = [
    "industrial control systems",
    "consumer electronics",
    "commercial real estate",
    "medical devices",
    "packaged foods and beverages",
    "natural gas pipelines",
    "specialty chemicals",
    "enterprise software",
    "retail banking services",
    "aircraft components",
    "wireless communication equipment",
    "building materials",
    "household products",
    "freight and logistics services",
    "semiconductor memory",
    "property and casualty insurance",
];

const MARKETS: [&str; 8] = [
    "in the United States and Canada",
    "throughout North America",
    "in more than forty countries",
    "to original equipment manufacturers",
    "to small and medium-sized businesses",
    "primarily in the Midwest",
    "through independent dealers",
    "to government agencies and public utilities",
];

pub struct Person {
    pub first: &'static str,
    pub middle: String,
    pub last: &'static str,
    pub gender: &'static str,
}

impl Person {
    pub fn draw(rng: &mut Rng) -> Person {
        let female = rng.chance(50);
        Person {
            first: rng.pick(if female { &FEMALE } else { &MALE }),
            middle: letter(rng).to_string(),
            // The lists are ordered by frequency: the smaller of two draws favours the front.
            last: LAST[rng
                .below(LAST.len() as u64)
                .min(rng.below(LAST.len() as u64)) as usize],
            gender: if female { "F" } else { "M" },
        }
    }

    pub fn full_name(&self) -> String {
        format!("{} {}", self.first, self.last)
    }

    pub fn email(&self, rng: &mut Rng) -> String {
        let (first, last, host) = (
            self.first.to_lowercase(),
            self.last.to_lowercase(),
            rng.pick(&MAIL_HOSTS),
        );
        match rng.below(3) {
            0 => format!("{first}.{last}@{host}"),
            1 => format!("{}{last}{}@{host}", &first[..1], rng.below(100)),
            _ => format!("{first}{}@{host}", rng.between(1950, 2005)),
        }
    }
}

pub struct Home {
    pub street: String,
    pub city: &'static str,
    pub state: &'static str,
    pub zip: String,
}

impl Home {
    pub fn draw(rng: &mut Rng) -> Home {
        let (city, state, zip) = rng.pick(&CITIES);
        Home {
            street: format!(
                "{} {} {}",
                rng.between(1, 9_999),
                rng.pick(&STREETS),
                rng.pick(&STREET_KINDS)
            ),
            city,
            state,
            zip: format!("{zip:03}{:02}", rng.below(100)),
        }
    }
}

pub fn phone(rng: &mut Rng) -> String {
    // 555-01xx is the range kept free for fiction.
    format!("({}) 555-01{:02}", rng.between(201, 989), rng.below(100))
}

pub fn tax_id(rng: &mut Rng) -> String {
    // Numbers from 900 on are never assigned to a person.
    format!(
        "9{:02}-{:02}-{:04}",
        rng.below(100),
        rng.between(1, 99),
        rng.between(1, 9_999)
    )
}

pub fn company(rng: &mut Rng) -> String {
    format!(
        "{} {} {}",
        rng.pick(&COMPANY_FIRST),
        rng.pick(&COMPANY_SECOND),
        rng.pick(&COMPANY_FORMS)
    )
}

/// Two to five sentences about the business of `company`.
pub fn description(rng: &mut Rng, company: &str) -> String {
    let mut text = String::new();
    for sentence in 0..rng.between(2, 5) {
        let subject = if sentence == 0 {
            company
        } else {
            "The company also"
        };
        let (activity, product, market) = (
            rng.pick(&ACTIVITIES),
            rng.pick(&PRODUCTS),
            rng.pick(&MARKETS),
        );
        if sentence > 0 {
            text.push(' ');
        }
        text.push_str(&format!("{subject} {activity} {product} {market}."));
    }
    text
}

/// The ticker symbol of security `n`: four letters, or five from the 456,976th on. All differ.
pub fn symbol(n: u64) -> String {
    const FOUR_LETTERS: u64 = 26_u64.pow(4);
    // The factor shares no divisor with 26, so the step visits every number once.
    let mut rest = n % FOUR_LETTERS * 7_919 % FOUR_LETTERS;
    let mut symbol = String::with_capacity(5);
    for _ in 0..4 {
        symbol.push(char::from(b'A' + (rest % 26) as u8));
        rest /= 26;
    }
    if n >= FOUR_LETTERS {
        symbol.push(char::from(b'A' + (n / FOUR_LETTERS % 26) as u8));
    }
    symbol
}

fn letter(rng: &mut Rng) -> char {
    char::from(b'A' + rng.below(26) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_securities_share_a_symbol() {
        let symbols: std::collections::HashSet<String> = (0..1_000_000).map(symbol).collect();
        assert_eq!(symbols.len(), 1_000_000);
    }
}

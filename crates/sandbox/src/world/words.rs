//! The texts of answers, questions and themes, in several scripts, with emoji, combining marks and characters that JSON
//! escapes.

use super::super::random::Random;

/// Sentences of free answers. Several scripts, right-to-left, emoji with joiners, combining marks, quotes,
/// tabs and line ends.
const SENTENCES: &[&str] = &[
    "The new dashboard is much faster than before.",
    "I could not find the export button.",
    "Setup took longer than expected, but support helped within the hour.",
    "Love it!",
    "Too many clicks to reach the report I need every morning.",
    "Please add a dark mode.",
    "It crashed twice while I was uploading a 2 GB file.",
    "Pricing is confusing: what exactly is a \"seat\"?",
    "Works as described.",
    "meh",
    "I use it daily for stand-ups and retros; the templates save us about 3 hours a week.",
    "Search returns results from archived projects, which is misleading.",
    "The invoice PDF has the wrong VAT number\nand nobody answers my ticket.",
    "First line\r\nsecond line\tand a tab",
    "C:\\Users\\me\\export.csv cannot be opened",
    "Die Übersetzung ist größtenteils gut, aber ein paar Menüs sind noch auf Englisch.",
    "Très pratique, même si l’onglet « Équipe » reste introuvable.",
    "¿Por qué no puedo cambiar el idioma? ¡Ayuda!",
    "Świetna aplikacja, działa błyskawicznie.",
    "Очень удобно, но не хватает тёмной темы.",
    "使いやすいですが、読み込みが遅いです。",
    "界面很清晰,但是导出功能找不到。",
    "검색이 정확하지 않아요.",
    "التطبيق رائع لكن البحث بطيء.",
    "הממשק נוח מאוד, תודה!",
    "ใช้งานง่ายมาก",
    "यह बहुत उपयोगी है।",
    "👍👍👍",
    "Great onboarding 🎉 but the tour 👩‍💻 restarts every time 🤷🏽‍♂️",
    "cafe\u{301} wi\u{308}th combining marks: e\u{301}\u{323}",
    "zero\u{200B}width and \u{202E}override\u{202C} marks",
    "It’s fine — really… “fine”.",
    "<b>bold?</b> & \"quoted\" 'text'",
    "=SUM(A1:A3)",
    "null",
    "N/A",
    "   leading and trailing spaces   ",
    "𝕌𝕟𝕚𝕔𝕠𝕕𝕖 beyond the first plane 𓀀",
];

const THEMES: &[(&str, &str)] = &[
    ("Slow performance", "Visitors report long loading times."),
    ("Missing export", "The export is hard to find or lacks formats."),
    ("Helpful support", "Support answers quickly and solves the problem."),
    ("Unclear pricing", "Plans and seats are not understood."),
    ("Onboarding", "First steps, tours and templates."),
    ("Search quality", "Results are wrong, old or too many."),
    ("Localisation 🌍", "Languages, translations and formats."),
    ("Stability", "Crashes and lost work."),
    ("Ease of use", "Praise for a clear interface."),
    ("Mobile", "Wishes for the phone."),
];

/// Words of survey names.
pub(crate) const SUBJECTS: &[&str] = &[
    "Onboarding",
    "Checkout",
    "Dashboard",
    "Billing",
    "Mobile app",
    "Search",
    "Support",
    "Exports",
    "Naïve “quotes”",
    "日本語ページ",
    "Templates",
    "Integrations",
];

/// Choices of MULTIPLECHOICE and MULTIPLESELECT questions.
pub(crate) const CHOICES: &[&str] = &[
    "Price",
    "Ease of use",
    "Speed",
    "Support",
    "Integrations, e.g. \"Slack\"",
    "Security",
    "Design",
    "Templates",
    "Größe",
    "Other",
];

/// Rows of MATRIX questions, and items of RANKORDER and MAXDIFF questions.
pub(crate) const ASPECTS: &[&str] = &[
    "Loading time",
    "Navigation",
    "Help texts",
    "Reports & exports",
    "Notifications",
    "Sharing",
    "Permissions",
    "Réglages",
];

/// Columns of MATRIX questions, with and without a leading number.
pub(crate) const COLUMNS: &[&[&str]] = &[
    &["1 - Very poor", "2 - Poor", "3 - Fair", "4 - Good", "5 - Very good"],
    &["Disagree", "Neutral", "Agree"],
    &["1", "2", "3", "4", "5", "6", "7"],
];

/// Draws a free answer of one to three sentences.
pub(crate) fn free_text(random: &mut Random) -> String {
    let mut text = String::from(*random.pick(SENTENCES));
    for _ in 0..[0, 0, 0, 1, 1, 2][random.index(6)] {
        text.push(' ');
        text.push_str(random.pick::<&str>(SENTENCES));
    }
    text
}

/// Returns name and description of the theme with this number. The texts repeat every ten numbers, so the themes of
/// each survey have the same texts.
pub(crate) fn theme(number: u64) -> (String, String) {
    // The remainder is below the length of the constant list.
    let (name, description) = THEMES[(number % THEMES.len() as u64) as usize];
    (name.to_owned(), description.to_owned())
}

/// The number of themes of each survey.
pub(crate) const THEMES_PER_SURVEY: u64 = THEMES.len() as u64;

/// Returns a text of about this many bytes: letters and digits, which JSON does not escape.
pub(crate) fn text_of_bytes(bytes: usize, seed: u64) -> String {
    let mut random = Random::new(seed, 9);
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(&format!("{:x} ", random.next()));
    }
    text
}

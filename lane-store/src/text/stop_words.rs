//! Words that carry no subject, per language. They are left out of questions, never of the index
//! (retrieval.md §5: dropping them there too makes no difference).
//!
//! Lists hold folded words, sorted. English: the usual function words plus question words, auxiliaries
//! and the fragments that contractions leave. `may` stays out: it is also a month.

use lanekeeper_core::lane::Language;

/// Whether a folded word is a stop word of the language.
pub(crate) fn is_stop(word: &str, language: Language) -> bool {
    list(language).binary_search(&word).is_ok()
}

/// Whether a folded piece before `'t` is the head of a negation (`don't`, `won't`): alone, `don` and
/// `won` are words.
pub(crate) fn is_negation_head(piece: &str, language: Language) -> bool {
    match language {
        Language::English => ENGLISH_HEADS.binary_search(&piece).is_ok(),
        Language::German | Language::French | Language::Spanish | Language::None => false,
    }
}

const fn list(language: Language) -> &'static [&'static str] {
    match language {
        Language::English => ENGLISH,
        Language::German => GERMAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        Language::None => &[],
    }
}

#[rustfmt::skip]
const ENGLISH_HEADS: &[&str] = &[
    "ain", "aren", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn", "mightn", "mustn", "needn",
    "shan", "shouldn", "wasn", "weren", "won", "wouldn",
];

#[rustfmt::skip]
const ENGLISH: &[&str] = &[
    "a", "about", "above", "after", "again", "against", "all", "also", "am", "an", "and", "any", "are", "arent", "as",
    "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "cannot",
    "cant", "could", "couldnt", "d", "did", "didnt", "do", "does", "doesnt", "doing", "done", "dont", "down",
    "during", "each", "either", "else", "ever", "few", "for", "from", "further", "had", "hadnt", "has", "hasnt",
    "have", "havent", "having", "he", "her", "here", "hers", "herself", "him", "himself", "his", "how", "however",
    "i", "if", "in", "into", "is", "isnt", "it", "its", "itself", "just", "ll", "m", "me", "might", "more", "most",
    "must", "my", "myself", "neither", "no", "nor", "not", "now", "o", "of", "off", "on", "once", "only", "onto",
    "or", "other", "ought", "our", "ours", "ourselves", "out", "over", "own", "please", "re", "s", "same", "shall",
    "she", "should", "shouldnt", "so", "some", "such", "t", "than", "that", "thats", "the", "their", "theirs", "them",
    "themselves", "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up",
    "upon", "us", "ve", "very", "was", "wasnt", "we", "were", "werent", "what", "whatever", "whats", "when", "where",
    "whether", "which", "while", "who", "whom", "whose", "why", "will", "with", "within", "without", "wont", "would",
    "wouldnt", "yet", "you", "your", "yours", "yourself", "yourselves",
];

#[rustfmt::skip]
const GERMAN: &[&str] = &[
    "aber", "alle", "allem", "allen", "aller", "alles", "als", "also", "am", "an", "ander", "andere", "anderem",
    "anderen", "anderer", "anderes", "auch", "auf", "aus", "bei", "beim", "bin", "bis", "bist", "da", "dabei",
    "dadurch", "dafür", "dagegen", "damit", "dann", "daran", "darauf", "daraus", "darf", "darin", "darum", "darüber",
    "das", "dass", "davon", "dazu", "dein", "deine", "deinem", "deinen", "deiner", "deines", "dem", "den", "denn",
    "der", "deren", "des", "dessen", "dich", "die", "dies", "diese", "diesem", "diesen", "dieser", "dieses", "dir",
    "doch", "dort", "du", "durch", "dürfen", "ein", "eine", "einem", "einen", "einer", "eines", "einige", "einigem",
    "einigen", "einiger", "einiges", "einmal", "er", "es", "etwas", "euch", "euer", "eure", "eurem", "euren", "eurer",
    "eures", "für", "gegen", "gewesen", "hab", "habe", "haben", "hast", "hat", "hatte", "hatten", "hattest", "hattet",
    "hier", "hin", "hinter", "hätte", "hätten", "ich", "ihm", "ihn", "ihnen", "ihr", "ihre", "ihrem", "ihren",
    "ihrer", "ihres", "im", "in", "indem", "ins", "ist", "ja", "jede", "jedem", "jeden", "jeder", "jedes", "jene",
    "jenem", "jenen", "jener", "jenes", "jetzt", "kann", "kannst", "kein", "keine", "keinem", "keinen", "keiner",
    "keines", "konnte", "konnten", "können", "könnt", "könnte", "könnten", "mach", "man", "manche", "manchem",
    "manchen", "mancher", "manches", "mein", "meine", "meinem", "meinen", "meiner", "meines", "mich", "mir", "mit",
    "muss", "musste", "mussten", "müssen", "müsste", "nach", "nein", "nicht", "nichts", "noch", "nun", "nur", "ob",
    "oder", "ohne", "schon", "sehr", "sein", "seine", "seinem", "seinen", "seiner", "seines", "seit", "selbst",
    "sich", "sie", "sind", "so", "solche", "solchem", "solchen", "solcher", "solches", "soll", "sollen", "sollte",
    "sollten", "sondern", "sonst", "um", "und", "uns", "unser", "unsere", "unserem", "unseren", "unserer", "unseres",
    "unter", "viel", "vom", "von", "vor", "wann", "war", "waren", "warst", "warum", "was", "weil", "weiter", "welche",
    "welchem", "welchen", "welcher", "welches", "wem", "wen", "wenn", "wer", "werde", "werden", "werdet", "weshalb",
    "wessen", "wie", "wieder", "wieso", "wieviel", "will", "wir", "wird", "wirst", "wo", "wobei", "wodurch", "wofür",
    "woher", "wohin", "wollen", "wollte", "womit", "worden", "wozu", "wurde", "wurden", "während", "wäre", "wären",
    "würde", "würden", "zu", "zum", "zur", "zwar", "zwischen", "über",
];

#[rustfmt::skip]
const FRENCH: &[&str] = &[
    "a", "afin", "ai", "aie", "aient", "aies", "ainsi", "ait", "alors", "apres", "après", "as", "au", "aucun",
    "aucune", "aura", "aurai", "auraient", "aurais", "aurait", "auras", "aurez", "auriez", "aurions", "aurons",
    "auront", "aussi", "autre", "autres", "aux", "avaient", "avais", "avait", "avant", "avec", "avez", "aviez",
    "avions", "avoir", "avons", "ayant", "ayez", "ayons", "c", "car", "ce", "ceci", "cela", "celle", "celles",
    "celui", "ces", "cet", "cette", "ceux", "chaque", "chez", "ci", "combien", "comme", "comment", "d", "dans", "de",
    "depuis", "des", "doit", "doivent", "donc", "dont", "du", "elle", "elles", "en", "encore", "entre", "es", "est",
    "et", "etaient", "etait", "etc", "etre", "eu", "eux", "fait", "faut", "furent", "fut", "ici", "il", "ils", "j",
    "je", "jusqu", "jusque", "l", "la", "laquelle", "le", "lequel", "les", "lesquelles", "lesquels", "leur", "leurs",
    "lors", "lorsqu", "lorsque", "lui", "là", "m", "ma", "mais", "me", "mes", "moi", "moins", "mon", "même", "mêmes",
    "n", "ne", "ni", "non", "nos", "notre", "nous", "on", "ont", "ou", "où", "par", "parce", "pas", "pendant", "peu",
    "peut", "peuvent", "plus", "plutôt", "pour", "pourquoi", "pourra", "pourrait", "puis", "puisqu", "puisque", "qu",
    "quand", "que", "quel", "quelle", "quelles", "quelqu", "quelque", "quelques", "quels", "qui", "quoi", "quoique",
    "s", "sa", "sans", "se", "sera", "serai", "seraient", "serais", "serait", "seras", "serez", "seriez", "serions",
    "serons", "seront", "ses", "si", "soi", "soient", "sois", "soit", "sommes", "son", "sont", "sous", "soyez",
    "soyons", "suis", "sur", "t", "ta", "tandis", "te", "tel", "telle", "telles", "tels", "tes", "toi", "ton", "tous",
    "tout", "toute", "toutes", "très", "tu", "un", "une", "vers", "voici", "voilà", "vos", "votre", "vous", "y", "à",
    "ça", "étaient", "étais", "était", "étant", "étiez", "étions", "êtes", "être",
];

#[rustfmt::skip]
const SPANISH: &[&str] = &[
    "a", "adonde", "adónde", "al", "algo", "alguien", "algun", "alguna", "algunas", "alguno", "algunos", "algún",
    "ambos", "ante", "antes", "aquel", "aquella", "aquellas", "aquello", "aquellos", "aqui", "aquí", "asi", "así",
    "aun", "aunque", "aún", "bajo", "cada", "casi", "como", "con", "contra", "cual", "cuales", "cualquier", "cuando",
    "cuanta", "cuantas", "cuanto", "cuantos", "cuyo", "cuál", "cuáles", "cuándo", "cuánta", "cuántas", "cuánto",
    "cuántos", "cómo", "de", "debe", "deben", "del", "desde", "donde", "durante", "dónde", "e", "el", "ella", "ellas",
    "ellos", "en", "entonces", "entre", "era", "eran", "eras", "eres", "es", "esa", "esas", "ese", "eso", "esos",
    "esta", "estaba", "estaban", "estamos", "estan", "estar", "estas", "este", "esto", "estos", "estoy", "estuve",
    "estuvo", "está", "están", "estás", "fue", "fueron", "fui", "fuimos", "ha", "haber", "habia", "había", "habían",
    "han", "has", "hasta", "hay", "haya", "he", "hemos", "hubo", "la", "las", "le", "les", "lo", "los", "mas", "me",
    "mi", "mia", "mientras", "mio", "mis", "mucho", "muchos", "muy", "más", "mí", "mía", "mías", "mío", "míos",
    "nada", "ni", "no", "nos", "nosotras", "nosotros", "nuestra", "nuestras", "nuestro", "nuestros", "o", "os",
    "otra", "otras", "otro", "otros", "para", "pero", "poco", "por", "porque", "porqué", "pueda", "puede", "pueden",
    "puedo", "pues", "que", "quien", "quienes", "quién", "quiénes", "qué", "se", "sea", "sean", "segun", "según",
    "ser", "sera", "será", "serán", "si", "sido", "siendo", "sin", "sino", "sobre", "sois", "somos", "son", "soy",
    "su", "sus", "suya", "suyas", "suyo", "suyos", "sí", "tal", "tambien", "también", "tampoco", "tan", "tanto", "te",
    "tenemos", "tener", "tengo", "tenia", "tenía", "ti", "tiene", "tienen", "tienes", "toda", "todas", "todo",
    "todos", "tu", "tus", "tuve", "tuvo", "tuya", "tuyas", "tuyo", "tuyos", "tú", "u", "un", "una", "unas", "uno",
    "unos", "usted", "ustedes", "vosotras", "vosotros", "vuestra", "vuestras", "vuestro", "vuestros", "y", "ya", "yo",
    "él",
];

#[cfg(test)]
mod tests {
    use super::super::chars::fold;
    use super::*;

    #[test]
    fn lists_are_sorted_folded_and_without_repeats() {
        for list in [ENGLISH, ENGLISH_HEADS, GERMAN, FRENCH, SPANISH] {
            for pair in list.windows(2) {
                assert!(pair[0] < pair[1], "{pair:?}");
            }
            for word in list {
                assert_eq!(fold(word), *word);
            }
        }
    }

    #[test]
    fn what_the_english_list_must_hold() {
        let words = "what when which who how did does would could might s t d ll re ve the of and is you";
        for word in words.split(' ') {
            assert!(is_stop(word, Language::English), "{word}");
        }
        for word in ["may", "don", "won", "use", "caroline", ""] {
            assert!(!is_stop(word, Language::English), "{word}");
        }
        assert!(is_negation_head("don", Language::English) && !is_negation_head("don", Language::German));
    }

    #[test]
    fn each_language_has_its_own_and_code_has_none() {
        assert!(is_stop("über", Language::German) && !is_stop("the", Language::German));
        assert!(is_stop("être", Language::French) && is_stop("qu", Language::French));
        assert!(is_stop("dónde", Language::Spanish));
        for word in ["the", "der", "le", "el"] {
            assert!(!is_stop(word, Language::None), "{word}");
        }
    }
}

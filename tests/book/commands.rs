//! The program accepts each `studysync` command in a `sh` block, with each flag and value.

use super::documents;

/// Returns the commands of a block, each as its words, without redirections. A backslash continues a line.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in text.lines() {
        let words = shlex::split(line).unwrap_or_else(|| panic!("no shell reads {line:?}"));
        let is_end = |word: &String| matches!(word.as_str(), "|" | "&&" | "||" | ";" | "&");
        for command in words.split(is_end) {
            let is_redirection = |word: &String| word.trim_start_matches(char::is_numeric).starts_with(['>', '<']);
            let end = command.iter().position(is_redirection).unwrap_or(command.len());
            // Assignments before a command set its environment.
            let is_variable = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_name(name));
            let words: Vec<_> = command[..end].iter().skip_while(is_variable).cloned().collect();
            commands.push(words);
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

#[test]
fn every_command_is_one_that_the_program_takes() {
    let mut faults = Vec::new();
    let mut count = 0;
    for block in documents().iter().flat_map(|page| page.blocks()).filter(|block| block.language == "sh") {
        for command in commands(&block.text).iter().filter(|words| words[0] == "studysync") {
            count += 1;
            let arguments: Vec<&str> = command[1..].iter().map(String::as_str).collect();
            let fault = studysync::cli::accepts(&arguments).err();
            faults.extend(fault.map(|fault| format!("{}: {}\n{fault}", block.place, arguments.join(" "))));
        }
    }
    assert!(count > 60, "only {count} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_wrong_command_is_noticed() {
    let text = "A=b studysync sync --deadline 3h >> x 2>> y # then\nstudysync backfill | tee z && studysync \\\n  plan --form 2026-01-01";
    let found = commands(text);
    let words: Vec<String> = found.iter().map(|words| words.join(" ")).collect();
    let expected = ["studysync sync --deadline 3h", "studysync backfill", "tee z", "studysync plan --form 2026-01-01"];
    assert_eq!(words, expected);
    let accepts = |words: &[String]| {
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        studysync::cli::accepts(&arguments)
    };
    assert!(accepts(&found[0]).is_ok());
    assert!(accepts(&found[1]).unwrap_err().contains("--from"));
    assert!(accepts(&found[3]).unwrap_err().contains("--form"));
}

//! The forms of a message for each kind of webhook receiver. Pure.
//!
//! A message contains texts of the service. In each form such a text can mention nobody, open no link under another
//! name, and stay below the receiver's limit of length.

use serde_json::{Value, json};

use crate::config::ReceiverKind;

use super::message::Message;

/// Maximum characters of a text for Slack, which recommends at most 4,000. Other chats with this form cut there too.
const SLACK_CHARS_MAX: usize = 4_000;
/// Maximum characters of a text for Google Chat, whose limit is 4,096.
const GOOGLE_CHARS_MAX: usize = 4_000;
/// Maximum characters of the member `content` at Discord.
const DISCORD_CHARS_MAX: usize = 2_000;
/// Maximum characters of a text for Teams, whose limit of a message is 28 KB.
const TEAMS_CHARS_MAX: usize = 6_000;
/// Words behind an at sign that notify a complete channel, in some chat.
const CHANNEL_MENTIONS: [&str; 4] = ["everyone", "channel", "here", "all"];
/// A blank without a width. It interrupts what a chat would take for markup, and nobody sees it.
const BREAK: char = '\u{200b}';

/// Returns the body of a webhook. `kind` is the configured kind; `None` if it has to be guessed from the URL.
pub(super) fn body(message: &Message, url: &str, kind: Option<ReceiverKind>) -> Value {
    let text = &message.text;
    match kind.unwrap_or_else(|| ReceiverKind::of_url(url)) {
        ReceiverKind::Discord => json!({ "content": discord(text), "allowed_mentions": { "parse": [] } }),
        ReceiverKind::Teams => {
            let mut body = card(text);
            // A host of Teams may also run a flow of the user that reads the generic members.
            if let (None, Value::Object(card), Value::Object(generic)) = (kind, &mut body, generic(message)) {
                card.extend(generic);
            }
            body
        }
        ReceiverKind::Generic => generic(message),
        kind @ (ReceiverKind::Slack | ReceiverKind::GoogleChat) => text_alone(message, kind),
    }
}

/// Returns the smallest body that a receiver of this kind shows, for a receiver that has refused the complete one.
pub(super) fn text_alone(message: &Message, kind: ReceiverKind) -> Value {
    let text = &message.text;
    match kind {
        ReceiverKind::Slack => json!({ "text": slack(text) }),
        ReceiverKind::GoogleChat => json!({ "text": google_chat(text) }),
        ReceiverKind::Discord => json!({ "content": discord(text) }),
        ReceiverKind::Teams => json!({ "text": teams(text) }),
        ReceiverKind::Generic => json!({ "text": harmless(text) }),
    }
}

/// Returns the body for a program: the text, the event, the health and the run's JSON.
fn generic(message: &Message) -> Value {
    json!({
        "text": harmless(&message.text),
        "event": message.event.name(),
        "health": message.health,
        "run": message.run,
    })
}

/// Returns a message with an adaptive card, which shows each line of the text as a paragraph.
fn card(text: &str) -> Value {
    let text = teams(text);
    let paragraphs: Vec<Value> =
        text.lines().map(|line| json!({ "type": "TextBlock", "text": line, "wrap": true })).collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": paragraphs,
            },
        }],
    })
}

fn slack(text: &str) -> String {
    escaped_entities(&unmentioned(text), SLACK_CHARS_MAX)
}

fn teams(text: &str) -> String {
    escaped_entities(&unlinked(&unmentioned(text)), TEAMS_CHARS_MAX)
}

/// Google Chat has no escapes: the break keeps `<users/all>` from being a mention.
fn google_chat(text: &str) -> String {
    cut(harmless(text).chars().map(String::from), GOOGLE_CHARS_MAX)
}

fn discord(text: &str) -> String {
    cut(unlinked(&harmless(text)).chars().map(String::from), DISCORD_CHARS_MAX)
}

/// Interrupts what would be a mention or a link in some chat, and changes nothing else.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let text = unmentioned(text);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        shown.push(letter);
        // `<!channel>`, `<@U1>`, `<#C1>`, `<users/all>`, `<https://example.com|text>`
        if letter == '<' && letters.peek().is_some_and(|next| next.is_ascii_alphabetic() || "!@#/".contains(*next)) {
            shown.push(BREAK);
        }
    }
    shown
}

/// Interrupts `@everyone` and its like, but no address such as `a@allegro.example`.
fn unmentioned(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, behind) = rest.split_at(at + 1);
        shown.push_str(before);
        let word = behind.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
        if CHANNEL_MENTIONS.iter().any(|mention| word.eq_ignore_ascii_case(mention)) {
            shown.push(BREAK);
        }
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Interrupts links of Markdown that show another text than their address.
fn unlinked(text: &str) -> String {
    text.replace("](", &format!("]{BREAK}("))
}

/// Escapes the characters of HTML and of Slack's markup.
fn escaped_entities(text: &str, chars_max: usize) -> String {
    let escaped = |letter: char| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        other => other.to_string(),
    };
    cut(text.chars().map(escaped), chars_max)
}

/// Joins pieces of a text, as many as fit into `chars_max` characters. A text that is cut ends with `…`. A chat may
/// count UTF-16 units, so these are counted.
fn cut(pieces: impl Iterator<Item = String>, chars_max: usize) -> String {
    let (mut text, mut units, mut end) = (String::new(), 0, 0);
    for piece in pieces {
        units += piece.encode_utf16().count();
        if units > chars_max {
            text.truncate(end);
            text.push('…');
            break;
        }
        text.push_str(&piece);
        if units < chars_max {
            // Up to here, the mark of the cut fits as well.
            end = text.len();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::NotifyEvent;

    const HOSTILE: &str =
        "<!channel> & <html> @everyone @Here <users/all> <@U1> [free](https://evil.example) a@b.example";

    fn message(text: &str) -> Message {
        Message {
            event: NotifyEvent::Failed,
            outcome: "failed".into(),
            exit_code: Some(1),
            summary: text.into(),
            text: text.into(),
            health: json!({}),
            run: json!({ "why": text }),
        }
    }

    fn body_of(text: &str, kind: ReceiverKind) -> Value {
        body(&message(text), "https://chat.example/hook", Some(kind))
    }

    fn members(body: &Value) -> Vec<&str> {
        body.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn each_kind_gets_only_the_members_that_it_knows() {
        for (kind, known) in [
            (ReceiverKind::Slack, &["text"][..]),
            (ReceiverKind::GoogleChat, &["text"]),
            (ReceiverKind::Discord, &["allowed_mentions", "content"]),
            (ReceiverKind::Teams, &["attachments", "type"]),
            (ReceiverKind::Generic, &["event", "health", "run", "text"]),
        ] {
            let body = body_of("it failed", kind);
            let mut found = members(&body);
            found.sort_unstable();
            assert_eq!(found, known, "{kind:?}");
            assert!(members(&text_alone(&message("it failed"), kind)).len() == 1, "{kind:?}");
        }
    }

    #[test]
    fn texts_of_the_service_mention_nobody() {
        for (kind, _) in ReceiverKind::ALL {
            for body in [body_of(HOSTILE, kind), text_alone(&message(HOSTILE), kind)] {
                let mut shown = body.clone();
                shown.as_object_mut().unwrap().remove("run");
                let shown = shown.to_string();
                for markup in ["<!channel>", "<html>", "@everyone", "@Here", "<users/all>", "<@U1>"] {
                    assert!(!shown.contains(markup), "{kind:?}: {markup} in {shown}");
                }
                let is_markdown = matches!(kind, ReceiverKind::Discord | ReceiverKind::Teams);
                assert!(!is_markdown || !shown.contains("]("), "{kind:?}: {shown}");
                assert!(shown.contains("a@b.example"), "{kind:?}: {shown}");
            }
        }
        assert_eq!(slack("a < b & c > d"), "a &lt; b &amp; c &gt; d");
        assert_eq!(body_of(HOSTILE, ReceiverKind::Discord)["allowed_mentions"]["parse"], json!([]));
    }

    #[test]
    fn a_usual_text_is_shown_as_it_is() {
        let text = "studysync sync failed on a: 3 < 5, see [1]\nWhat to do: run `check --notify`";
        for body in [body_of(text, ReceiverKind::Generic), body_of(text, ReceiverKind::GoogleChat)] {
            assert_eq!(body["text"], text);
        }
        assert_eq!(body_of(text, ReceiverKind::Discord)["content"], text);
        let teams = body_of(text, ReceiverKind::Teams);
        let blocks = &teams["attachments"][0]["content"]["body"];
        assert_eq!(blocks[1]["text"], "What to do: run `check --notify`");
        assert_eq!(blocks.as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_kind_is_guessed_from_the_host() {
        for (url, expected) in [
            ("https://hooks.slack.com/services/T/B/x", ReceiverKind::Slack),
            ("https://HOOKS.SLACK.COM.:443/services/T/B/x", ReceiverKind::Slack),
            ("https://chat.googleapis.com/v1/spaces/A/messages?key=k&token=t", ReceiverKind::GoogleChat),
            ("https://discord.com/api/webhooks/1/x?wait=true", ReceiverKind::Discord),
            ("https://canary.discord.com/api/webhooks/1/x", ReceiverKind::Discord),
            ("https://discord.com/api/webhooks/1/x/slack", ReceiverKind::Slack),
            ("https://prod-1.westeurope.logic.azure.com:443/workflows/a/triggers/manual", ReceiverKind::Teams),
            ("https://a.b.environment.api.powerplatform.com:443/powerautomate/x", ReceiverKind::Teams),
            ("https://company.webhook.office.com/webhookb2/x", ReceiverKind::Teams),
            ("https://chat.example.com/hooks/x", ReceiverKind::Generic),
            ("https://hooks.slack.com.example.com/x", ReceiverKind::Generic),
            ("https://nothooks.slack.com/x", ReceiverKind::Generic),
            ("https://example.com/?to=discord.com", ReceiverKind::Generic),
            ("https://user@discord.com/api/webhooks/1/x", ReceiverKind::Discord),
        ] {
            assert_eq!(ReceiverKind::of_url(url), expected, "{url}");
        }
    }

    #[test]
    fn a_guessed_flow_of_teams_keeps_the_generic_members() {
        let found = body(&message("it failed"), "https://prod-1.logic.azure.com/workflows/a", None);
        assert!(found["attachments"].is_array() && found["text"] == "it failed" && found["run"].is_object(), "{found}");
    }

    proptest! {
        #[test]
        fn no_text_exceeds_the_limit_of_its_receiver(letters in 0_usize..9_000, letter in any::<char>()) {
            let text: String = std::iter::repeat_n(letter, letters).collect();
            let units = |text: &Value| text.as_str().unwrap().encode_utf16().count();
            prop_assert!(units(&body_of(&text, ReceiverKind::Slack)["text"]) <= SLACK_CHARS_MAX);
            prop_assert!(units(&body_of(&text, ReceiverKind::GoogleChat)["text"]) <= GOOGLE_CHARS_MAX);
            prop_assert!(units(&body_of(&text, ReceiverKind::Discord)["content"]) <= DISCORD_CHARS_MAX);
            prop_assert!(body_of(&text, ReceiverKind::Teams).to_string().len() < 28_000 || letter.is_control());
        }
    }
}

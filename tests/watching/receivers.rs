//! The receivers of webhooks: each kind accepts the body that it gets, no text mentions anybody, and a message that
//! cannot be read or sent does not block others.

use serde_json::{Value, json};

use super::{Answer, Receiver, place_at, place_for, with_wrong_key};
use crate::harness::{Done, KEY, KEY_VARIABLE, Place, Service, small};

/// Text that a hostile or careless service could send.
const HOSTILE: &str = "<!channel> <html> @everyone @channel <users/all> [free](https://evil.example)";

fn webhook(receiver: &Receiver, more: &str) -> String {
    format!("[notify]\nurl = \"{}\"\ntimeout_secs = 5\nattempts = 1\n{more}", receiver.url())
}

/// A service that refuses every request with a hostile text, and a run against it that notifies this receiver.
fn run_against_a_hostile_service(receiver: &Receiver, more: &str) -> Done {
    let service = Receiver::start();
    service.answers(Answer::Judged(|_| (400, json!({ "error": HOSTILE }).to_string())));
    let base_url = service.url().replace("/s3cret-path", "");
    let done = place_at(&base_url, &webhook(receiver, more)).run(&["sync"]);
    assert_ne!(done.code, 0, "{}", done.stderr);
    done
}

/// Refuses a body with any other member, as Google Chat does.
fn knows(body: &Value, members: &[&str]) -> Result<(), String> {
    let unknown = body.as_object().into_iter().flatten().find(|(name, _)| !members.contains(&name.as_str()));
    unknown.map_or(Ok(()), |(name, _)| Err(format!("Invalid JSON payload received. Unknown name \"{name}\"")))
}

fn text_of(text: &Value, chars_max: usize) -> Result<(), String> {
    let text = text.as_str().ok_or("no_text")?;
    let is_harmless = ["<!channel>", "<users/all>", "<html>", "@everyone", "@channel"];
    match () {
        () if text.is_empty() || text.chars().count() > chars_max => Err(format!("{} characters", text.len())),
        () if is_harmless.into_iter().any(|markup| text.contains(markup)) => Err(format!("it mentions: {text}")),
        () => Ok(()),
    }
}

fn answered(outcome: Result<(), String>) -> (u16, String) {
    outcome.map_or_else(|why| (400, json!({ "error": { "message": why } }).to_string()), |()| (200, "ok".into()))
}

fn slack(body: &Value) -> (u16, String) {
    answered(knows(body, &["text"]).and_then(|()| text_of(&body["text"], 4_000)))
}

fn google_chat(body: &Value) -> (u16, String) {
    answered(knows(body, &["text"]).and_then(|()| text_of(&body["text"], 4_096)))
}

fn discord(body: &Value) -> (u16, String) {
    let mentions = if body["allowed_mentions"]["parse"] == json!([]) { Ok(()) } else { Err("it may mention".into()) };
    answered(
        mentions
            .and_then(|()| knows(body, &["content", "allowed_mentions"]))
            .and_then(|()| text_of(&body["content"], 2_000)),
    )
}

fn teams(body: &Value) -> (u16, String) {
    let card = &body["attachments"][0];
    let is_card = body["type"] == "message" && card["contentType"] == "application/vnd.microsoft.card.adaptive";
    let blocks = card["content"]["body"].as_array().cloned().unwrap_or_default();
    let texts = blocks.iter().try_for_each(|block| text_of(&block["text"], 7_000));
    answered(match is_card && card["content"]["type"] == "AdaptiveCard" && !blocks.is_empty() {
        true => texts.and_then(|()| knows(body, &["type", "attachments"])),
        false => Err("no card".into()),
    })
}

#[test]
fn each_kind_of_receiver_accepts_what_it_gets() {
    type Judge = fn(&Value) -> (u16, String);
    let kinds: [(&str, Judge); 4] =
        [("slack", slack), ("google_chat", google_chat), ("discord", discord), ("teams", teams)];
    for (kind, judge) in kinds {
        let receiver = Receiver::start();
        receiver.answers(Answer::Judged(judge));
        let done = run_against_a_hostile_service(&receiver, &format!("kind = \"{kind}\"\n"));
        let posted = receiver.take();
        assert_eq!(posted.len(), 1, "{kind}: {}", done.stderr);
        assert!(!done.stderr.contains("cannot notify"), "{kind}: {}", done.stderr);
        // The message includes the service's text.
        assert!(posted[0].to_string().contains("free"), "{kind}: {}", posted[0]);
    }
}

#[test]
fn a_generic_receiver_gets_the_run_and_no_mention() {
    let receiver = Receiver::start();
    run_against_a_hostile_service(&receiver, "");
    let posted = receiver.take();
    assert_eq!(text_of(&posted[0]["text"], 9_000), Ok(()));
    assert_eq!(posted[0]["event"], "failed");
    assert!(posted[0]["run"]["why"].as_str().unwrap().contains(HOSTILE), "a program gets the exact text");
}

#[test]
fn the_kind_of_receiver_is_guessed_from_the_address() {
    // The receiver is the proxy, so it gets the requests to every host.
    for (address, member) in [
        ("hooks.slack.com/services/T/s3cret", "text"),
        ("chat.googleapis.com/v1/spaces/A/messages?key=s3cret", "text"),
        ("discord.com/api/webhooks/1/s3cret", "content"),
        ("prod-1.westeurope.logic.azure.com/workflows/s3cret", "attachments"),
    ] {
        let service = Service::start(small(20, 3));
        let receiver = Receiver::start();
        let proxy = receiver.url().replace("/s3cret-path", "");
        let hook = format!("[notify]\nurl = \"http://{address}\"\nattempts = 1\n");
        let place = with_wrong_key(place_for(&service, &hook));
        let place = place.with_env("http_proxy", &proxy).with_env("no_proxy", "127.0.0.1,localhost");
        let done = place.run(&["sync"]).expect(4);
        let posted = receiver.take();
        assert_eq!(posted.len(), 1, "{address}: {}", done.stderr);
        assert!(!posted[0][member].is_null(), "{address}: {}", posted[0]);
        let is_strict = member != "attachments";
        assert!(!is_strict || posted[0]["run"].is_null(), "{address}: {}", posted[0]);
    }
}

#[test]
fn p11_a_refusal_is_logged_and_the_text_tried_alone() {
    let service = Service::start(small(20, 3));
    let receiver = Receiver::start();
    // A custom chat server that knows `text` only, and repeats the secret of its address in its error.
    receiver.answers(Answer::Judged(|body| {
        let (status, said) = answered(knows(body, &["text"]));
        (status, said.replace("Invalid", "at /s3cret-path: Invalid"))
    }));
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "")));
    let done = place.run(&["sync"]).expect(4);
    let posted = receiver.take();
    assert_eq!(posted.len(), 2, "{}", done.stderr);
    assert_eq!(posted[1], json!({ "text": posted[0]["text"] }));
    assert!(done.stderr.contains("400") && done.stderr.contains("Unknown name"), "{}", done.stderr);
    assert!(!done.stderr.contains("s3cret-path"), "{}", done.stderr);
    // The receiver also refuses the text alone: the message is given up, and the error quotes the receiver.
    receiver.answers(Answer::Judged(|_| (400, "x".repeat(100_000))));
    let place = place.with_env(KEY_VARIABLE, KEY);
    let done = place.run(&["sync"]).expect(0);
    assert_eq!(receiver.take().len(), 2, "{}", done.stderr);
    assert!(done.stderr.contains("given up") && done.stderr.contains("xxx"), "{}", done.stderr);
    assert!(done.stderr.len() < 20_000, "an answer is bounded: {}", done.stderr.len());
}

#[test]
fn check_notify_shows_the_sentence_of_the_receiver() {
    let service = Service::start(small(20, 3));
    let receiver = Receiver::start();
    receiver.answers(Answer::Judged(|_| (404, "no_service".into())));
    let done = place_for(&service, &webhook(&receiver, "kind = \"slack\"\n")).run(&["check", "--notify"]).expect(1);
    assert!(done.stdout.contains("the webhook answered with 404 Not Found: no_service"), "{}", done.stdout);
}

/// A place with one pending message, and the content of its outbox.
fn with_a_pending_message(service: &Service, receiver: &Receiver) -> (Place, Value) {
    receiver.answers(Answer::Status(500));
    let place = with_wrong_key(place_for(service, &webhook(receiver, "")));
    place.run(&["sync"]).expect(4);
    receiver.take();
    receiver.answers(Answer::Status(200));
    let file = std::fs::read(place.path("state/checkpoints.sqlite.notifications")).unwrap();
    (place, serde_json::from_slice(&file).unwrap())
}

#[test]
fn an_unreadable_message_loses_no_other() {
    let service = Service::start(small(20, 3));
    let receiver = Receiver::start();
    let (place, outbox) = with_a_pending_message(&service, &receiver);
    let good = outbox["waiting"][0].clone();
    let damaged = |change: &dyn Fn(&mut Value)| {
        let mut message = good.clone();
        change(&mut message);
        message
    };
    let unreadable = [
        json!(7),
        json!({}),
        damaged(&|message| message["message"]["event"] = json!("of_a_later_version")),
        damaged(&|message| message["message"]["text"] = json!(1)),
        damaged(&|message| message["channels"] = json!(["a_later_channel"])),
        damaged(&|message| message["id"] = json!(-1)),
    ];
    let path = place.path("state/checkpoints.sqlite.notifications");
    for unreadable in unreadable {
        let mut content = outbox.clone();
        content["waiting"] = json!([unreadable, good, unreadable]);
        std::fs::write(&path, content.to_string()).unwrap();
        let done = place.run(&["sync"]).expect(4);
        let posted = receiver.take();
        assert_eq!(posted.len(), 1, "{unreadable}: {}", done.stderr);
        assert_eq!(posted[0]["text"], good["message"]["text"]);
        let left: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(left["waiting"], json!([]), "{unreadable}");
    }
    // An unknown state from a later version, and an unknown channel next to a known one.
    let mut content = outbox.clone();
    content["told"]["state"] = json!("of_a_later_version");
    content["next_id"] = json!(null);
    content["waiting"][0]["channels"] = json!(["a_later_channel", "webhook"]);
    std::fs::write(&path, content.to_string()).unwrap();
    let done = place.run(&["sync"]).expect(4);
    assert_eq!(receiver.take().len(), 2, "the pending one, and the failure again: {}", done.stderr);
    // A byte that is not valid UTF-8.
    let mut bytes = outbox.to_string().into_bytes();
    let at = String::from_utf8_lossy(&bytes).find("studysync sync failed").unwrap();
    bytes[at] = 0xff;
    std::fs::write(&path, bytes).unwrap();
    place.run(&["sync"]).expect(4);
    assert_eq!(receiver.take().len(), 1);
    // A file that is not JSON is reported.
    std::fs::write(&path, "{\"told\":").unwrap();
    let done = place.run(&["sync"]).expect(4);
    assert!(done.stderr.contains("damaged"), "{}", done.stderr);
    assert_eq!(receiver.take().len(), 1, "the failure is notified anew");
}

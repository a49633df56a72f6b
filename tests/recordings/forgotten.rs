//! Promise P9 for recordings: an erasure of a person also erases the person's recordings.

use studysync_sandbox::RowKey;

use super::*;
use crate::erase::grep::{Needle, found};

const WHO: &str = "recorded-person-1";
const SESSION: &str = "5E551011-0000-4000-8000-00000000000A";

fn plant(service: &Service, session: &str, question: i64, who: &str) {
    let upload = format!("0f0f0f0f-0000-4000-8000-{question:012}");
    let record = json!({
        "responseGroupUid": session, "questionId": question, "surveyId": 990, "questionType": "VIDEOVOICE",
        "questionText": "Say it", "createdAt": "2026-01-28T08:15:30.123Z", "updatedAt": "2026-01-28T08:15:30.123Z",
        "visitorId": 880_001, "visitorUuid": "7a7a7a7a-0000-4000-8000-000000000001", "externalUserId": who,
        "response": {
            "downloadUrl": format!("https://media.example.com/{upload}/download"), "duration": 2.5, "mediaType": "video",
            "transcription": "it", "updatedAt": "2026-01-28T08:16:00.000Z", "uploadId": upload,
            "videoUrl": format!("https://media.example.com/{upload}.m3u8"),
        },
    });
    service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
}

/// Three recordings in two sessions of one person, next to those of others, and the content of the three.
fn recorded() -> (Service, Place, Vec<Vec<u8>>) {
    let service = Service::start(settings(Media::default()));
    plant(&service, SESSION, 9101, WHO);
    plant(&service, SESSION, 9102, WHO);
    plant(&service, "5e551011-0000-4000-8000-00000000000b", 9101, WHO);
    let place = place(&service, ON);
    backfill(&place);
    let links = links(&service);
    let theirs = links.iter().filter(|((session, _), _)| session.to_lowercase().starts_with("5e551011"));
    let contents: Vec<Vec<u8>> = theirs.map(|(_, link)| content(link)).collect();
    assert_eq!(contents.len(), 3);
    (service, place, contents)
}

/// Counts the files that have one of the contents.
fn holding(place: &Place, contents: &[Vec<u8>]) -> usize {
    let files = place.files("").into_iter().map(|path| std::fs::read(path).unwrap());
    files.filter(|bytes| contents.iter().any(|content| bytes.windows(64).any(|some| some == &content[..64]))).count()
}

#[test]
fn p9_erase_removes_the_recordings_of_the_person_only() {
    let (service, place, contents) = recorded();
    let others = kept(&place).len() - 2;
    // Two of the three are the same upload; each session has its own file.
    assert_eq!(holding(&place, &contents), 3);
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", WHO]).expect(0).json();
    assert_eq!(plan["recordings"], 3, "{plan:#}");
    assert!(
        place
            .run(&["erase", "--dry-run", "--user-id", WHO])
            .expect(0)
            .stdout
            .contains("recordings: 3 files of 2 sessions")
    );
    assert_eq!(kept(&place).len(), others + 2, "a plan removes nothing");

    place.run(&["person", WHO, "--out", "theirs"]).expect(0);
    let exported: Vec<Vec<u8>> =
        place.files("theirs/recordings").into_iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(exported.len(), 3);
    assert!(exported.iter().all(|recording| contents.contains(recording)), "a recording of somebody else");
    std::fs::remove_dir_all(place.path("theirs")).unwrap();

    let receipt = place.run(&["erase", "--yes", "--json", "--user-id", WHO]).expect(0).json();
    assert_eq!(receipt["removed"]["recordings"], 3, "{receipt:#}");
    let searched = &receipt["verified"]["places"]["recordings"];
    assert_eq!((&searched["left"], searched["searched"].as_u64()), (&json!(0), Some(2)), "{receipt:#}");
    assert_eq!(holding(&place, &contents), 0, "no byte of them is left");
    assert_eq!(kept(&place).len(), others - 1, "those of others stay");
    let needles = [Needle::new(WHO), Needle::new(SESSION)];
    assert_eq!(found(&place, &needles), [""; 0]);
    // Scans suppress the answers and their recordings as long as the service sends them.
    let asked = requests(&service).len();
    let place = place.with_config(&format!("{ALL_FLAGS}rescan = [\"all every run\"]\n{ON}"));
    place.run(&["sync"]).expect(0);
    assert_eq!((requests(&service).len(), holding(&place, &contents)), (asked, 0));
    drop(service);
}

#[test]
fn p9_erase_finds_recordings_in_an_earlier_folder() {
    let (service, place, contents) = recorded();
    // The configuration disabled recordings in between, and names another folder.
    let place = place.with_config(&format!("{ALL_FLAGS}\n[recordings]\npath = \"elsewhere\"\n"));
    place.run(&["erase", "--yes", "--user-id", WHO]).expect(0);
    assert_eq!(holding(&place, &contents), 0);
    drop(service);
}

#[test]
fn p9_recordings_of_vanished_answers_are_not_fetched() {
    let service = Service::start(settings(Media { lost_percent: 0, ..Media::default() }));
    let place = place(&service, "");
    backfill(&place);
    let (_, tables) = place.warehouses().remove(0);
    let (session, question) = rows(&tables).into_keys().next().unwrap();
    drop(tables);
    let key = RowKey { group: session.clone(), question: question.to_string() };
    assert!(service.control().remove_row(&key) > 0);
    let again = format!("{ALL_FLAGS}rescan = [\"all every run\"]\n");
    let place = place.with_config(&again);
    place.run(&["sync", "--accept-vanished"]).expect(0);
    let place = place.with_config(&format!("{again}{ON}"));
    place.run(&["sync"]).expect(0);
    for (name, tables) in place.warehouses() {
        assert_eq!(rows(&tables)[&(session.clone(), question)]["recording_status"], None, "{name}");
    }
    assert!(kept(&place).len() > 20);
}

#[test]
fn p9_erase_finds_recordings_in_every_folder_used() {
    let service = Service::start(settings(Media::default()));
    plant(&service, SESSION, 9101, WHO);
    // Another warehouse or another setting moves the folder, and the recordings are downloaded again.
    let place = place(&service, ON).without_parquet();
    backfill(&place);
    let link = links(&service).into_iter().find(|((session, _), _)| session == SESSION).unwrap().1;
    let contents = [content(&link)];
    let place = place.with_config(&format!("{ALL_FLAGS}{ON}path = \"second\"\n"));
    std::fs::remove_file(place.duckdb()).unwrap();
    backfill(&place);
    let place = place.with_config(&format!("{ALL_FLAGS}{ON}path = \"third\"\n"));
    std::fs::remove_file(place.duckdb()).unwrap();
    backfill(&place);
    assert_eq!(holding(&place, &contents), 3);
    // The disk with the recordings is not mounted: the erasure refuses to start.
    std::fs::rename(place.path("second"), place.path("away")).unwrap();
    let refused = place.run(&["erase", "--yes", "--user-id", WHO]).expect(2);
    assert!(refused.stderr.contains("second, which is not there: mount it"), "{}", refused.stderr);
    assert_eq!(holding(&place, &contents), 3);
    std::fs::rename(place.path("away"), place.path("second")).unwrap();
    let receipt = place.run(&["erase", "--yes", "--json", "--user-id", WHO]).expect(0).json();
    assert_eq!(receipt["removed"]["recordings"], 3, "{receipt:#}");
    assert_eq!(holding(&place, &contents), 0);
}

#[test]
fn p9_the_recording_of_a_deleted_answer_is_not_fetched() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, "");
    backfill(&place);
    // The answer is older than the re-scanned range, deleted, and its link has expired. Its page is requested again for
    // a fresh link.
    service.change(&ChangeRequest { seed: 5, soft_deletes: 400, ..ChangeRequest::default() });
    set(&service, &json!({"media": {"generation": 1}}));
    let place = place.with_config(&format!("{ALL_FLAGS}rescan = []\n{ON}"));
    place.run(&["sync"]).expect(0);
    assert_eq!(kept(&place).len(), links(&service).len());
}

//! `kill -9` under load: each delivery that was answered with 200 is in the warehouses afterwards, once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Poster, SECRET, Serving, answer_body, in_each, place_for};
use crate::harness::{Service, small};

const POSTERS: usize = 8;

#[test]
fn p1_p2_kills_lose_and_duplicate_no_delivery() {
    killed_so_often(5);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_p2_slow_twenty_kills_lose_and_duplicate_no_delivery() {
    killed_so_often(20);
}

fn killed_so_often(kills: u64) {
    let service = Service::start(small(300, 5));
    // Runs and flushes continue all the time, so that kills interrupt both.
    let place = place_for(&service, "schedule = \"off\"\nwake_secs = 1\nflush_secs = 1\n");
    let (answered, next) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicU64::new(0)));
    let mut posted_before = 0;
    for kill in 0..kills {
        let serving = Serving::start(&place);
        let is_over = Arc::new(AtomicBool::new(false));
        let posters: Vec<_> = (0..POSTERS)
            .map(|_| {
                let (answered, next, is_over) = (Arc::clone(&answered), Arc::clone(&next), Arc::clone(&is_over));
                let address = serving.address;
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok(mut poster) = Poster::connect(address) else { return };
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            match poster.post(SECRET, answer_body(number).as_bytes()) {
                                Ok(200) => drop(answered.lock().unwrap().insert(number)),
                                // The outcome of this delivery is unknown; it need not be stored.
                                _ => break,
                            }
                        }
                    }
                })
            })
            .collect();
        // The delays vary, to kill at different stages of a flush, which starts a second after the first delivery.
        std::thread::sleep(Duration::from_millis(300 + 137 * (kill * 20 / kills)));
        is_over.store(true, Ordering::Relaxed);
        serving.kill();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        let posted = answered.lock().unwrap().len();
        assert!(posted > posted_before, "kill {kill}: nothing was answered before it");
        posted_before = posted;
    }
    let serving = Serving::start(&place);
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    place.run(&["sync", "--quiet"]).expect(0);
    let answered = answered.lock().unwrap();
    let posted = next.load(Ordering::Relaxed) as usize;
    eprintln!("{} deliveries were answered over {kills} kills, {posted} posted", answered.len());
    in_each(&place, |name, tables| {
        let rows = tables.rows_of("SELECT response_group_uid, count(*) FROM webhook_events GROUP BY ALL");
        let mut found = BTreeSet::new();
        for row in &rows {
            assert_eq!(row[1].as_deref(), Some("1"), "{name}: {:?} is there more than once", row[0]);
            found.insert(row[0].as_deref().unwrap().trim_start_matches("group-").parse::<u64>().unwrap());
        }
        let lost: Vec<&u64> = answered.iter().filter(|number| !found.contains(number)).collect();
        assert!(lost.is_empty(), "{name}: {} answered deliveries are lost, such as {:?}", lost.len(), lost.first());
    });
}

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pods() -> Arc<str> {
    "pods".into()
}

fn object(name: &str, size: u32) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": {"size": size.to_string()}}, "spec": {"size": size}})
}

#[derive(Clone, Debug)]
enum Op {
    Create(u8, u32),
    Update(u8, u32),
    Delete(u8),
    Stale(u8, u32),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0_u8..6, 0_u32..3).prop_map(|(name, size)| Op::Create(name, size)),
        (0_u8..6, 0_u32..3).prop_map(|(name, size)| Op::Update(name, size)),
        (0_u8..6).prop_map(Op::Delete),
        (0_u8..6, 0_u32..3).prop_map(|(name, size)| Op::Stale(name, size)),
    ]
}

/// Runs the operations on a store and on a plain map, comparing every answer.
fn run(store: &Store, ops: &[Op], model: &mut BTreeMap<String, (u64, u32)>, revision: &mut u64) {
    for op in ops {
        let (name, write, expect) = match op {
            Op::Create(name, size) => {
                let name = name.to_string();
                let expect = if model.contains_key(&name) { Err(CommitError::AlreadyExists) } else { Ok(Some(*size)) };
                (name.clone(), Write::Create(object(&name, *size)), expect)
            }
            Op::Update(name, size) => {
                let name = name.to_string();
                let seen = model.get(&name).map(|(seen, _)| *seen);
                let expect = if seen.is_none() { Err(CommitError::NotFound) } else { Ok(Some(*size)) };
                (name.clone(), Write::Update(seen.unwrap_or(1), object(&name, *size)), expect)
            }
            Op::Delete(name) => {
                let name = name.to_string();
                let seen = model.get(&name).map(|(seen, _)| *seen);
                let expect = if seen.is_none() { Err(CommitError::NotFound) } else { Ok(None) };
                (name.clone(), Write::Delete(seen.unwrap_or(1), object(&name, 0)), expect)
            }
            Op::Stale(name, size) => {
                let name = name.to_string();
                let seen = model.get(&name).map(|(seen, _)| *seen);
                let expect = if seen.is_none() { Err(CommitError::NotFound) } else { Err(CommitError::Conflict) };
                (name.clone(), Write::Update(seen.unwrap_or(1) + 1000, object(&name, *size)), expect)
            }
        };
        let got = store.commit(&pods(), ObjectKey::new("n", &name), write);
        match (got, expect) {
            (Ok(entry), Ok(size)) => {
                *revision += 1;
                assert_eq!(entry.revision, *revision, "one revision per write");
                match size {
                    Some(size) => model.insert(name, (*revision, size)),
                    None => model.remove(&name),
                };
            }
            (Err(got), Err(expect)) => assert_eq!(got, expect),
            (got, expect) => panic!("{op:?}: got {got:?}, expected {expect:?}"),
        }
    }
}

fn contents(page: &Page) -> BTreeMap<String, (u64, u32)> {
    let size = |entry: &Entry| entry.label("size").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
    page.entries.iter().map(|entry| (entry.key.name.to_string(), (entry.revision, size(entry)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_map_with_revisions(first in prop::collection::vec(any_op(), 0..40),
                                         second in prop::collection::vec(any_op(), 0..40)) {
        let store = Store::in_memory();
        let (mut model, mut revision) = (BTreeMap::new(), 1);
        run(&store, &first, &mut model, &mut revision);
        let (then, at) = (model.clone(), revision);
        let mut follower = store.follow(&pods(), at);
        run(&store, &second, &mut model, &mut revision);

        // Now, then, and the way from then to now.
        let now = store.list("pods", &ListRange::default(), |_| true).expect("current");
        prop_assert_eq!(contents(&now), model.clone());
        prop_assert_eq!(now.revision, revision);
        let past = store.list("pods", &ListRange { at: Some(at), ..ListRange::default() }, |_| true).expect("remembered");
        prop_assert_eq!(contents(&past), then.clone());
        let mut replay = then;
        for event in follower.poll(usize::MAX).expect("remembered") {
            let name = event.entry.key.name.to_string();
            let size = event.entry.label("size").and_then(|text| text.parse().ok()).unwrap_or(0);
            prop_assert_eq!(event.change == Change::Added, !replay.contains_key(&name));
            match event.change {
                Change::Deleted => replay.remove(&name),
                _ => replay.insert(name, (event.entry.revision, size)),
            };
        }
        prop_assert_eq!(replay, model);
    }

    #[test]
    fn pages_put_together_are_the_list(ops in prop::collection::vec(any_op(), 0..40), limit in 1_usize..4) {
        let store = Store::in_memory();
        let (mut model, mut revision) = (BTreeMap::new(), 1);
        run(&store, &ops, &mut model, &mut revision);
        let mut found = BTreeMap::new();
        let mut after: Option<ObjectKey> = None;
        loop {
            let span = ListRange { namespace: Some("n"), after: after.as_ref(), limit: Some(limit), at: Some(revision) };
            let page = store.list("pods", &span, |_| true).expect("current");
            found.extend(contents(&page));
            prop_assert_eq!(page.remaining, Some(model.len() - found.len()));
            if !page.more { break }
            after = page.entries.last().map(|entry| ObjectKey::clone(&entry.key));
        }
        prop_assert_eq!(found, model);
    }

    #[test]
    fn survives_being_opened_again(ops in prop::collection::vec(any_op(), 0..12)) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (mut model, mut revision) = (BTreeMap::new(), 1);
        let store = Store::open(directory.path()).expect("opens");
        run(&store, &ops, &mut model, &mut revision);
        drop(store);
        let store = Store::open(directory.path()).expect("opens again");
        let page = store.list("pods", &ListRange::default(), |_| true).expect("current");
        prop_assert_eq!(contents(&page), model);
        prop_assert_eq!(page.revision, revision);
    }
}

#[test]
fn a_list_without_objects_can_be_followed_by_a_watch() {
    let store = Store::in_memory();
    let listed = store.list("jobs", &ListRange::default(), |_| true).expect("current").revision;
    // Another table moves the revision on before the watch starts.
    store.commit(&pods(), ObjectKey::new("n", "a"), Write::Create(object("a", 1))).expect("new");
    let jobs: Arc<str> = "jobs".into();
    assert_eq!(store.follow(&jobs, listed).poll(10).expect("nothing is compacted").len(), 0);
    let other: Arc<str> = "leases".into();
    store.commit(&other, ObjectKey::new("n", "b"), Write::Create(object("b", 1))).expect("new");
    assert_eq!(store.follow(&other, listed).poll(10).expect("nothing is compacted").len(), 1);
}

#[test]
fn a_follower_behind_the_history_gets_an_error() {
    let store = Store::in_memory();
    let mut follower = store.follow(&pods(), 1);
    let big = "x".repeat(1 << 20);
    for index in 0..40 {
        let value = json!({"metadata": {"name": index.to_string()}, "data": big});
        store.commit(&pods(), ObjectKey::new("", &index.to_string()), Write::Create(value)).expect("new");
    }
    assert!(matches!(follower.poll(10), Err(Compacted)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_wakes_a_follower() {
    let store = Arc::new(Store::in_memory());
    let mut follower = store.follow(&pods(), 1);
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        loop {
            for event in follower.poll(100).expect("remembered") {
                sender.send(event.entry.revision).expect("somebody listens");
            }
            follower.changed().await;
        }
    });
    for index in 0..2000 {
        let name = index.to_string();
        let entry = store.commit(&pods(), ObjectKey::new("n", &name), Write::Create(object(&name, 1))).expect("new");
        let woken = tokio::time::timeout(std::time::Duration::from_secs(10), seen.recv()).await;
        assert_eq!(woken, Ok(Some(entry.revision)), "write {index} woke nobody");
    }
    task.abort();
}

#[test]
fn owners_know_their_dependents() {
    let store = Store::in_memory();
    let owned = json!({"metadata": {"name": "b", "ownerReferences": [{"uid": "a"}]}});
    let entry = store.commit(&pods(), ObjectKey::new("n", "b"), Write::Create(owned)).expect("new");
    assert_eq!(store.dependents(Uid::parse("a")).len(), 1);
    let free = json!({"metadata": {"name": "b"}});
    store.commit(&pods(), ObjectKey::new("n", "b"), Write::Update(entry.revision, free)).expect("seen");
    assert!(store.dependents(Uid::parse("a")).is_empty());
}

#[tokio::test]
async fn nothing_is_seen_before_it_is_on_disk() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path()).expect("opens");
    let mut follower = store.follow(&pods(), 1);
    let entry = store.commit(&pods(), ObjectKey::new("n", "a"), Write::Create(object("a", 1))).expect("new");
    store.wait_visible(entry.revision).await.expect("written");
    assert_eq!(follower.poll(10).expect("remembered").len(), 1);
    assert_eq!(store.visible(), entry.revision);
}

//! Finds the field that a message of the operator is about: its messages are sentences for people and carry no path.

use std::collections::HashMap;

use super::yaml::Node;

/// The paths of the cluster spec in the four kinds.
const CLUSTER_SPECS: [&[&str]; 4] =
    [&["spec", "rayClusterSpec"], &["spec", "rayClusterConfig"], &["spec", "jobTemplate", "rayClusterSpec"], &["spec"]];

/// Phrases that stand for a field of another name.
const ALIASES: [(&str, &str); 5] = [
    ("time zone", "timezone"),
    ("cron schedule", "schedule"),
    ("autoscaler is required", "enableintreeautoscaling"),
    ("k8s token auth", "enablek8stokenauth"),
    ("suspended", "suspend"),
];

/// Beginnings of messages that say nothing about the field.
const PREFIXES: [&str; 3] =
    ["invalid RayJob template: ", "The RayJob spec is invalid: ", "The RayService spec is invalid: "];

/// The lists whose items messages call by their names.
const NAMED_LISTS: [&str; 3] = ["env", "volumeMounts", "volumes"];

/// Returns the path of the cluster spec in an object.
pub(crate) fn cluster_spec(root: &Node) -> &'static [&'static str] {
    let holds_cluster = |path: &&[&str]| root.at(path).is_some_and(|spec| spec.get("headGroupSpec").is_some());
    CLUSTER_SPECS.into_iter().find(holds_cluster).unwrap_or(&["spec"])
}

/// Returns the path of the field that a message is about, or of the closest part of the object around it.
pub(crate) fn of_message(message: &str, root: &Node) -> String {
    if message.contains(" name should be ") {
        let has = |key: &str| root.at(&["metadata", key]).is_some();
        let is_generated = !has("name") && has("generateName");
        return if is_generated { "metadata.generateName" } else { "metadata.name" }.to_owned();
    }
    let message = PREFIXES.iter().fold(message, |message, prefix| message.strip_prefix(prefix).unwrap_or(message));
    let words = words(message);
    let annotations = root.at(&["metadata", "annotations"]).into_iter().flat_map(Node::entries);
    if let Some(entry) = annotations.into_iter().find(|entry| words.contains_key(&entry.key.to_lowercase())) {
        return format!("metadata.annotations[{}]", entry.key);
    }
    let lower = message.to_lowercase();
    let cluster_path = cluster_spec(root);
    let (cluster, shown) = (root.at(cluster_path), cluster_path.join("."));
    if let Some(at) = cluster.and_then(|spec| named_group(spec, &words)).filter(|_| lower.contains("group")) {
        let path = format!("{shown}.workerGroupSpecs[{at}]");
        let group = cluster.and_then(|spec| spec.get("workerGroupSpecs")?.items().nth(at));
        return group.and_then(|group| best_match(group, &path, &words)).unwrap_or(path);
    }
    if ["head group", "head pod", "headgroupspec"].iter().any(|phrase| lower.contains(phrase)) {
        let path = format!("{shown}.headGroupSpec");
        let head = cluster.and_then(|spec| spec.get("headGroupSpec"));
        if let Some(found) = head.and_then(|head| best_match(head, &path, &words)) {
            return found;
        }
    }
    root.get("spec").and_then(|spec| best_match(spec, "spec", &words)).unwrap_or_else(|| "spec".to_owned())
}

/// Returns the path of the first value that a decoding error quotes.
pub(crate) fn of_value(message: &str, root: &Node) -> Option<String> {
    let quoted = message.split('`').nth(1).or_else(|| message.split('"').nth(1))?;
    find_value(root.get("spec")?, quoted).map(|path| format!("spec{path}"))
}

fn find_value(node: &Node, text: &str) -> Option<String> {
    if node.text().is_some_and(|own| own == text) {
        return Some(String::new());
    }
    let below = |name: String, child: &Node| find_value(child, text).map(|path| name + &path);
    node.entries()
        .find_map(|entry| below(format!(".{}", entry.key), &entry.value))
        .or_else(|| node.items().enumerate().find_map(|(at, item)| below(format!("[{at}]"), item)))
}

/// The words of a message in lower case with their positions; `a.b` counts as a whole and as its parts.
type Words = HashMap<String, usize>;

fn words(message: &str) -> Words {
    let mut words = Words::new();
    let mut add = |word: &str, at: usize| {
        words.entry(word.to_lowercase()).or_insert(at);
    };
    for (at, word) in message.split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c))).enumerate() {
        let word = word.trim_end_matches('.');
        add(word, at);
        word.split('.').for_each(|part| add(part, at));
    }
    let lower = message.to_lowercase();
    for (phrase, field) in ALIASES {
        if lower.contains(phrase) {
            add(field, usize::MAX);
        }
    }
    words
}

fn named_group(spec: &Node, words: &Words) -> Option<usize> {
    let name = |group: &Node| group.get("groupName").and_then(Node::as_str).map(str::to_lowercase);
    let groups = spec.get("workerGroupSpecs")?;
    groups.items().position(|group| name(group).is_some_and(|name| words.contains_key(&name)))
}

/// The field that most of a message's words lead to.
struct Best {
    /// How many parts of the path the message names, and where it names the last one.
    rank: (usize, std::cmp::Reverse<usize>),
    path: String,
}

/// Returns the field below a node whose path the message names best.
fn best_match(node: &Node, path: &str, words: &Words) -> Option<String> {
    let mut search = Search { words, path: vec![path.to_owned()], best: None };
    search.visit(node, 0, false);
    search.best.map(|best| best.path)
}

struct Search<'a> {
    words: &'a Words,
    path: Vec<String>,
    best: Option<Best>,
}

impl Search<'_> {
    fn visit(&mut self, node: &Node, named: usize, in_template: bool) {
        for entry in node.entries() {
            // Pod templates are full of common words, and messages are only about a few of their fields.
            let counts = !in_template || entry.key == "restartPolicy";
            let at = self.words.get(&entry.key.to_lowercase()).copied().filter(|_| counts);
            self.enter(format!(".{}", entry.key), named, at, |search, named| {
                let in_template = in_template || entry.key == "template";
                search.visit(&entry.value, named, in_template);
                if NAMED_LISTS.contains(&entry.key.as_str()) {
                    search.visit_named(&entry.value, named);
                }
            });
        }
        for (index, item) in node.items().enumerate() {
            self.enter(format!("[{index}]"), named, None, |search, named| search.visit(item, named, in_template));
        }
    }

    fn visit_named(&mut self, list: &Node, named: usize) {
        for (index, item) in list.items().enumerate() {
            let name = item.get("name").and_then(Node::as_str).map(str::to_lowercase);
            let at = name.and_then(|name| self.words.get(&name).copied());
            self.enter(format!("[{index}]"), named, at, |_, _| {});
        }
    }

    /// Goes one part further, and keeps the path if the message names this part and names no other path better.
    fn enter(&mut self, part: String, named: usize, at: Option<usize>, inside: impl FnOnce(&mut Self, usize)) {
        self.path.push(part);
        let named = named + usize::from(at.is_some());
        if let Some(at) = at {
            let rank = (named, std::cmp::Reverse(at));
            if self.best.as_ref().is_none_or(|best| rank > best.rank) {
                self.best = Some(Best { rank, path: self.path.concat() });
            }
        }
        inside(self, named);
        self.path.pop();
    }
}

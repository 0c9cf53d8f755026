//! What a job runs, and what it needs: the body of a submission.

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// The flags for the entrypoint, with the names of `ray job submit`.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct EntrypointArgs {
    /// Metadata of the job, as JSON
    #[arg(long, value_name = "JSON")]
    metadata_json: Option<String>,
    /// Custom resources of the entrypoint, as JSON
    #[arg(long, value_name = "JSON")]
    entrypoint_resources: Option<String>,
    /// CPUs of the entrypoint
    #[arg(long, default_value_t = 0.0, value_name = "NUMBER")]
    entrypoint_num_cpus: f32,
    /// GPUs of the entrypoint
    #[arg(long, default_value_t = 0.0, value_name = "NUMBER")]
    entrypoint_num_gpus: f32,
    /// Memory of the entrypoint, in bytes
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    entrypoint_memory: u64,
}

impl EntrypointArgs {
    /// Returns the body of the submission request; what is not set is left out.
    pub(crate) fn body(&self, entrypoint: &str, id: &str, env: Option<Map<String, Value>>) -> anyhow::Result<Value> {
        let mut body = Map::new();
        body.insert("entrypoint".into(), entrypoint.into());
        body.insert("submission_id".into(), id.into());
        if let Some(env) = env {
            body.insert("runtime_env".into(), env.into());
        }
        let texts = [
            ("metadata", "--metadata-json", &self.metadata_json),
            ("entrypoint_resources", "--entrypoint-resources", &self.entrypoint_resources),
        ];
        for (key, flag, text) in texts {
            if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
                let value: Map<String, Value> =
                    serde_json::from_str(text).with_context(|| format!("{flag} is not a JSON object"))?;
                body.insert(key.into(), Value::Object(value));
            }
        }
        if let Some(resources) = body.get("entrypoint_resources").and_then(Value::as_object)
            && let Some((name, _)) = resources.iter().find(|(_, amount)| !amount.is_number())
        {
            bail!("--entrypoint-resources: {name} must be a number");
        }
        let numbers =
            [("entrypoint_num_cpus", self.entrypoint_num_cpus), ("entrypoint_num_gpus", self.entrypoint_num_gpus)];
        for (key, number) in numbers {
            if number != 0.0 {
                // Converted through text, so that 1.1 stays 1.1 as f64.
                body.insert(key.into(), serde_json::from_str(&number.to_string())?);
            }
        }
        if self.entrypoint_memory != 0 {
            body.insert("entrypoint_memory".into(), self.entrypoint_memory.into());
        }
        Ok(Value::Object(body))
    }
}

/// Returns the words of a command as a line for a shell; a single word is a line already.
pub(crate) fn command_line(words: &[String]) -> String {
    if let [line] = words {
        return line.clone();
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let check = |words: &[&str], expect: &str| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(command_line(&words), expect);
        };
        check(&["python", "train.py", "--lr=0.1"], "python train.py --lr=0.1");
        check(&["python", "-c", "print('a b')"], r"python -c 'print('\''a b'\'')'");
        check(&["echo", "$HOME", ""], "echo '$HOME' ''");
        check(&["python a.py && python b.py"], "python a.py && python b.py");
    }
}

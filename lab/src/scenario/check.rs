//! What a scenario says of its world is looked at before anything starts: every name is there, every order can be carried out, and the
//! changed topology is one. What depends on the moment, such as starting what runs, is not here.

use anyhow::{Context as _, ensure};
use topology::Topology;

use super::file::{Act, Change, Scenario};
use crate::wan::Emulator;
use crate::world::{Fault, Kind, Plan, WorldFile};
use crate::yaml::Wrong;

/// In a fault: the core relay that carries most calls at that moment.
pub(super) const RELAY: &str = "RELAY";
/// A share of what a way carries is known when it does; so fast it may be.
const SOME_RATE: &str = "rate_kbit_s=1000";

/// Whether the world has everything that the scenario names.
///
/// # Errors
/// It has not; the text says which field is wrong, and why.
pub(super) fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let mut file = WorldFile::find(&scenario.world).context("world")?;
    scenario.network.apply(&mut file.topology);
    topology_of(&file).context("network")?;
    let plan = Plan::new(&file).context("world")?;
    let emulator = Emulator::new(&plan.wan).context("world")?;
    let mut world = Named {
        file,
        plan,
        emulator,
    };
    for (i, order) in scenario.conditions.iter().enumerate() {
        world
            .wan(order)
            .with_context(|| format!("conditions[{i}]"))?;
    }
    let calls = &scenario.calls;
    world.client(&calls.from).context("calls.from")?;
    let v6 = calls.v6;
    let mut vips = world.plan.vips.iter();
    ensure!(
        vips.any(|vip| vip.is_ipv6() == v6),
        "calls.v6: the world has no such VIP"
    );
    world
        .transceiver(&calls.transceiver)
        .context("calls.transceiver")?;
    for (i, event) in scenario.faults.iter().enumerate() {
        let field = || format!("faults[{i}].do: `{}`", event.act);
        world.act(&event.act).with_context(field)?;
    }
    let must = &scenario.must;
    for pop in must.path.iter().flat_map(|(before, after)| [before, after]) {
        world.pop(pop).context("must.path")?;
    }
    let later = must.later_calls_at.iter();
    later
        .into_iter()
        .try_for_each(|node| world.transceiver(node).context("must.later_calls_at"))
}

/// Whether the world of the scenario announces anything, if that is what it changes: nothing would come of it otherwise.
///
/// # Errors
/// It does not ([`Wrong`]), or there is no such world.
pub(super) fn announced(scenario: &Scenario, text: &str) -> anyhow::Result<()> {
    let file = WorldFile::find(&scenario.world).context("world")?;
    let Some(key) = for_nobody(&scenario.network, &file.topology) else {
        return Ok(());
    };
    let world = &scenario.world;
    let what =
        format!("network.{key}: world `{world}` has no network.anycast, so nobody speaks BGP");
    Err(Wrong::of_key(text, key, &what).into())
}

/// What a change says of BGP in a network that has none.
fn for_nobody(change: &Change, topology: &Topology) -> Option<&'static str> {
    let said = [
        ("bfd_ms", change.bfd_ms.is_some()),
        ("hold_s", change.hold_s.is_some()),
    ];
    let found = said.into_iter().find(|(_key, said)| *said);
    found
        .filter(|_found| topology.network.anycast.is_none())
        .map(|(key, _said)| key)
}

/// Whether the topology, as changed, is one that a program would take.
fn topology_of(file: &WorldFile) -> anyhow::Result<()> {
    let text = topology::to_yaml(&file.topology).context("it has no YAML form")?;
    let Err(errors) = topology::load(&text, "") else {
        return Ok(());
    };
    // The lines would be those of a text that nobody has.
    let first = errors.as_slice().first().context("an error")?;
    anyhow::bail!("with it, {}: {}", first.field, first.problem)
}

/// Everything that has a name in a world.
struct Named {
    file: WorldFile,
    plan: Plan,
    emulator: Emulator,
}

impl Named {
    fn act(&mut self, act: &Act) -> anyhow::Result<()> {
        match act {
            Act::Rebind | Act::Roam => Ok(()),
            Act::Call(_, transceiver) => self.transceiver(transceiver),
            Act::World(fault) => self.fault(fault),
        }
    }

    fn fault(&mut self, fault: &Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(node)
            | Fault::Start(node)
            | Fault::Stop(node)
            | Fault::Cont(node)
            | Fault::Term(node) => self.kind(node, "node with a program", Kind::runs),
            Fault::KillBird(node) | Fault::StartBird(node) => {
                self.kind(node, "PoP, router or ISP", |kind| {
                    matches!(kind, Kind::Pop | Kind::Router | Kind::Isp)
                })
            }
            Fault::PowerOff(node) | Fault::PowerOn(node) => {
                self.kind(node, "node", |_any| true)?;
                self.wan(&format!("cut {node} *"))
            }
            Fault::Withdraw(node) | Fault::Announce(node) => self.pop(node),
            Fault::Drain(node) | Fault::Undrain(node) => {
                self.kind(node, "node that can drain", |kind| {
                    kind.runs() && !matches!(kind, Kind::Redis(_))
                })
            }
            Fault::Wan(order) => self.wan(order),
        }
    }

    /// The emulator carries it out, as it will in the world.
    fn wan(&mut self, order: &str) -> anyhow::Result<()> {
        let words = order.split_whitespace().map(|word| {
            let share = word.starts_with("rate=") && word.ends_with('%');
            if share {
                SOME_RATE.to_owned()
            } else {
                word.to_owned()
            }
        });
        let order = words.collect::<Vec<_>>().join(" ");
        let answer = self.emulator.obey(&order.replace(RELAY, self.some_relay()));
        let error = answer.get("error").and_then(|error| error.as_str());
        ensure!(error.is_none(), "{}", error.unwrap_or_default());
        Ok(())
    }

    fn some_relay(&self) -> &str {
        let mut relays = self.plan.names(|kind| *kind == Kind::CoreRelay);
        relays.next().unwrap_or(RELAY)
    }

    fn client(&self, name: &str) -> anyhow::Result<()> {
        self.kind(name, "client", |kind| matches!(kind, Kind::Client { .. }))
    }

    fn pop(&self, name: &str) -> anyhow::Result<()> {
        self.kind(name, "PoP", |kind| *kind == Kind::Pop)
    }

    fn transceiver(&self, name: &str) -> anyhow::Result<()> {
        self.kind(name, "transceiver", |kind| *kind == Kind::Transceiver)
    }

    fn kind(&self, name: &str, what: &str, is: impl Fn(&Kind) -> bool) -> anyhow::Result<()> {
        let name = if name == RELAY {
            self.some_relay()
        } else {
            name
        };
        let node = self.plan.nodes.get(name);
        let world = &self.file.name;
        ensure!(
            node.is_some_and(|node| is(&node.kind)),
            "no {what} of world `{world}` is named `{name}`"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
about: a test
world: small
conditions: [set r-lon r-fra jitter_ms=0.2]
calls: { from: c-lon, transceiver: eu-t1 }
faults:
  - { at_ms: 0, do: kill RELAY }
  - { at_ms: 0, do: cut lon>RELAY }
  - { at_ms: 0, do: power-off fra }
  - { at_ms: 0, do: kill-bird r-lon }
  - { at_ms: 0, do: kill redis-all }
  - { at_ms: 0, do: withdraw lon }
  - { at_ms: 0, do: drain eu-t1 }
  - { at_ms: 500, do: call 3 at eu-t2 }
watch_s: 3
must: { path: [lon, fra], later_calls_at: eu-t2 }
";

    fn complaint(text: &str) -> Option<String> {
        let scenario = Scenario::parse(text).unwrap();
        check(&scenario).err().map(|error| format!("{error:#}"))
    }

    #[test]
    fn bgp_of_a_world_without_it_is_refused() {
        let mut topology = WorldFile::find("small").unwrap().topology;
        let change = |bfd_ms, hold_s| Change {
            bfd_ms,
            hold_s,
            ..Change::default()
        };
        assert_eq!(for_nobody(&change(Some(0), None), &topology), None);
        topology.network.anycast = None;
        assert_eq!(for_nobody(&change(None, None), &topology), None);
        let found = for_nobody(&change(Some(0), None), &topology);
        assert_eq!(found, Some("bfd_ms"));
        let found = for_nobody(&change(None, Some(9)), &topology);
        assert_eq!(found, Some("hold_s"));
    }

    #[test]
    fn what_the_world_does_not_have_is_refused_before_anything_starts() {
        assert_eq!(complaint(GOOD), None);
        for (from, to, why) in [
            ("world: small", "world: nosuch", "world: nosuch: "),
            (
                "kill RELAY",
                "kill nosuch",
                "faults[0].do: `kill nosuch`: no node with a program of world `small` is named `nosuch`",
            ),
            ("kill RELAY", "kill r-lon", "no node with a program"),
            (
                "lon>RELAY",
                "lon>nosuch",
                "faults[1].do: `cut lon>nosuch`: no such direction",
            ),
            ("power-off fra", "power-off nosuch", "faults[2].do: "),
            (
                "kill-bird r-lon",
                "kill-bird eu-t1",
                "no PoP, router or ISP",
            ),
            ("kill redis-all", "kill redis-none", "faults[4].do: "),
            ("withdraw lon", "withdraw r-lon", "no PoP of world"),
            ("drain eu-t1", "drain c-lon", "no node that can drain"),
            ("3 at eu-t2", "3 at eu-t9", "no transceiver of world"),
            ("c-lon", "c-nosuch", "calls.from: no client"),
            ("eu-t1 }", "eu-r1 }", "calls.transceiver: no transceiver"),
            ("[lon, fra]", "[lon, r-fra]", "must.path: no PoP"),
            (
                "later_calls_at: eu-t2",
                "later_calls_at: lon",
                "must.later_calls_at: ",
            ),
            ("jitter_ms=0.2", "jiter_ms=0.2", "conditions[0]: "),
            ("jitter_ms=0.2", "jitter_ms=-1", "conditions[0]: "),
            (
                "watch_s",
                "network: { bfd_ms: 1 }\nwatch_s",
                "network: with it, network.anycast.bfd.interval_ms: 1 is outside 10..=5000",
            ),
            (
                "watch_s",
                "network: { link_mtu_bytes: 10 }\nwatch_s",
                "network: with it, network.link.mtu_bytes: 10 is outside",
            ),
            (
                "watch_s",
                "network: { hold_s: 1 }\nwatch_s",
                "network: with it, network.anycast.hold_s",
            ),
            (
                "watch_s",
                "network: { link_down_after_ms: 5 }\nwatch_s",
                "network: with it, network.link.",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let said = complaint(&text).unwrap_or_else(|| panic!("{to} is taken"));
            assert!(said.contains(why) && !said.contains('\n'), "{to}: {said}");
        }
    }
}

//! What a decision says of itself: the JSON of HTTP steering and of `explain`.

use serde::Serialize;

use crate::facts::{Facts, PlaceOf};
use crate::live::Standing;
use crate::plan::{PopIx, RegionIx};
use crate::policy::measured::MeasuredBy;
use crate::policy::rules::MatchedBy;
use crate::rank::Evidence;
use crate::select::Tier;

/// Which region and which ingresses a client gets, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The client's /24 or /48.
    pub prefix: ipnet::IpNet,
    /// The group it chooses among equals with.
    pub slot: u8,
    /// What databases say of it.
    pub facts: Facts,
    /// Rules that decided something.
    pub rules: Vec<RuleSaid>,
    /// Residency that was demanded.
    pub residency: Option<String>,
    /// The region chosen.
    pub region: String,
    /// Its index.
    #[serde(skip)]
    pub region_ix: RegionIx,
    /// All regions, the chosen one first.
    pub regions: Vec<Choosable>,
    /// PoPs with links to that region, the chosen one first.
    pub ingresses: Vec<Choosable>,
    /// Whether equals share these clients: then the answer holds for its /20 or /40 at most.
    pub shared: bool,
    /// The ingress that was first, when another was put before it to be measured.
    pub explored_instead_of: Option<String>,
    /// What would change the choice.
    pub flips: Vec<Flip>,
    /// How long the answer may be kept.
    pub ttl_s: u32,
}

/// A rule that decided something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleSaid {
    /// Its name.
    pub rule: String,
    /// What of the client matched.
    pub matched_by: MatchedBy,
    /// What it gave.
    pub gives: Vec<Gives>,
}

/// What a rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gives {
    /// An order of regions.
    Regions,
    /// An order of PoPs.
    Pops,
    /// What to avoid.
    Avoid,
    /// A residency.
    Residency,
}

/// A candidate, with the terms of its cost and why it was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choosable {
    /// Name of the region or PoP.
    pub name: String,
    /// Its index in the plan.
    #[serde(skip)]
    pub index: u16,
    /// Sum of the terms, in milliseconds. Absent where costs were not compared.
    pub cost_ms: Option<u32>,
    /// What the cost is made of.
    pub terms: Vec<Term>,
    /// Of a region: the PoP its cost is counted through.
    pub via: Option<String>,
    /// How usable it is.
    pub standing: Standing,
    /// Where it stands among those that are as usable.
    pub tier: Tier,
    /// Why it was not chosen.
    pub lost: Option<Lost>,
}

/// A term of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "term", rename_all = "snake_case")]
pub enum Term {
    /// Round trip between client and PoP.
    Client {
        /// Milliseconds.
        ms: u32,
        /// What it rests on.
        evidence: EvidenceShown,
        /// Clients it was measured of.
        clients: u32,
    },
    /// Round trip between PoP and region.
    Backbone {
        /// Milliseconds.
        ms: u32,
        /// Whether it was measured; else estimated.
        measured: bool,
        /// Whether no link is up there: then the PoP stands as one that is down.
        cut: bool,
    },
    /// Penalty for the load of the PoP.
    PopLoad {
        /// Milliseconds.
        ms: u32,
        /// Load.
        load_percent: u16,
    },
    /// Penalty for the load of the region.
    RegionLoad {
        /// Milliseconds.
        ms: u32,
        /// Load.
        load_percent: u16,
    },
}

/// Evidence, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceShown {
    /// Measured for the client's prefix.
    MeasuredPrefix,
    /// Measured for prefixes next to it.
    MeasuredNeighbours,
    /// Measured for its autonomous system and country.
    MeasuredAsn,
    /// Measured longer ago than counts, and farther than its distance suggests.
    MeasuredBefore,
    /// Distance to its city.
    City,
    /// Distance to its country.
    Country,
    /// Distance to its continent.
    Continent,
    /// None.
    Nothing,
}

/// Why a candidate was not chosen: the first difference from the one that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Lost {
    /// It is full, draining, down or not linked, and another is not.
    Standing,
    /// Its residency is not the one demanded.
    Residency,
    /// The request names another region.
    Pinned,
    /// A rule or the topology's order puts the chosen one before it.
    Order,
    /// It is avoided.
    Avoided,
    /// Its weight is 0.
    Standby,
    /// It is farther, by more than equals are.
    Farther {
        /// Milliseconds.
        by_ms: u32,
    },
    /// It is an equal, and other clients are its share.
    Share,
    /// It is the best, and the chosen one is measured.
    Explored,
}

/// Something that would change the choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "when", rename_all = "snake_case")]
pub enum Flip {
    /// The chosen region or ingress is not usable.
    NotUsable {
        /// What is chosen.
        chosen: String,
        /// What would be.
        then: String,
    },
    /// The cost of the chosen one grows, or that of the other falls, by this much.
    Cost {
        /// What is chosen.
        chosen: String,
        /// What would be.
        then: String,
        /// Milliseconds.
        by_ms: u32,
    },
    /// The load of the chosen one reaches this.
    Load {
        /// What is chosen.
        chosen: String,
        /// What would be.
        then: String,
        /// Percent.
        at_percent: u32,
    },
    /// The rule is gone.
    WithoutRule {
        /// Its name.
        rule: String,
        /// What is chosen.
        chosen: String,
        /// What would be.
        then: String,
    },
    /// Nothing is measured.
    WithoutMeasured {
        /// What is chosen.
        chosen: String,
        /// What would be.
        then: String,
    },
}

impl Decision {
    /// Indices of the ingresses, best first.
    pub fn ingress_order(&self) -> impl Iterator<Item = PopIx> {
        self.ingresses
            .iter()
            .map(|candidate| PopIx(candidate.index))
    }
}

impl From<Evidence> for EvidenceShown {
    fn from(evidence: Evidence) -> Self {
        match evidence {
            Evidence::Measured(MeasuredBy::Prefix) => Self::MeasuredPrefix,
            Evidence::Measured(MeasuredBy::Neighbours) => Self::MeasuredNeighbours,
            Evidence::Measured(MeasuredBy::Asn) => Self::MeasuredAsn,
            Evidence::MeasuredBefore => Self::MeasuredBefore,
            Evidence::Distance(PlaceOf::City) => Self::City,
            Evidence::Distance(PlaceOf::Country) => Self::Country,
            Evidence::Continent => Self::Continent,
            Evidence::Nothing => Self::Nothing,
        }
    }
}

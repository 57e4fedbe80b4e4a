//! Every reason that a condition of ours can have: a closed list. docs/conditions.md says what to do about each, and
//! a test compares the two.

/// Why a condition is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    // All is well.
    /// All of it is well.
    Ready,
    /// The record names this lane, and its store holds the log.
    Held,
    /// The record names this lane; no store runs.
    Claimed,
    /// Qdrant refuses a wrong token and a wrong epoch.
    Enforced,
    /// The volume is bound.
    Bound,
    /// The volume is bound and grows at the next start of the pod.
    Resizing,
    /// The collection is there, indexed and reached through its alias.
    CollectionThere,
    /// The store keeps its vectors itself.
    InProcess,
    /// The store answers.
    Running,
    /// The embedder gave a vector of the declared length.
    Answers,
    /// Every lane of `reads` consents, or there is none.
    Resolved,
    // Nothing is wrong, but it is not done.
    /// The lane is suspended.
    Suspended,
    /// The lane is being deleted.
    Deleting,
    /// It is being made.
    Pending,
    /// The store starts.
    Starting,
    /// The store of the pod that runs has not become the holder yet.
    AwaitingHolder,
    /// The volume waits for a node or a provisioner.
    VolumePending,
    /// The embedder starts.
    EmbedderStarting,
    /// No lane uses the Embedder.
    Idle,
    /// Lanes use the Embedder.
    InUse,
    // Somebody has to change the Lane, or another object of ours.
    /// The object cannot be read.
    InvalidSpec,
    /// Another lane holds the collection.
    CollectionTaken,
    /// The volume or the record is another lane's.
    VolumeConflict,
    /// Nobody may write: the record is sealed.
    Sealed,
    /// There is no Embedder of the name.
    EmbedderUnknown,
    /// The lane names an embedder with another fingerprint than its vectors have.
    FingerprintChanged,
    /// The Embedder contradicts itself.
    EmbedderInvalid,
    /// The operator was not told an image for the Embedder's runtime.
    RuntimeImageMissing,
    /// A lane of `reads` does not exist.
    ReadTargetMissing,
    /// A lane of `reads` is no corpus lane.
    ReadTargetNotCorpus,
    /// A lane of `reads` does not list this one in `readers`.
    ReadTargetDoesNotConsent,
    /// An object of the name exists and is somebody else's.
    NameTaken,
    /// The namespace is being deleted.
    NamespaceTerminating,
    // The cluster lacks something.
    /// The volume's data is lost.
    VolumeLost,
    /// The volume cannot grow.
    VolumeNotExpandable,
    /// No node has the labels, the affinity or the volume's zone.
    NoMatchingNode,
    /// No node has enough GPUs.
    InsufficientGPU,
    /// No node has enough CPU, memory or other resources.
    InsufficientResources,
    /// Nodes have a taint that the pod does not tolerate.
    UntoleratedTaint,
    /// A quota of the namespace is used up.
    QuotaExceeded,
    /// The image cannot be pulled.
    ImagePullFailed,
    /// The pod is refused by a policy of the cluster.
    PodRefused,
    /// A volume or Secret cannot be mounted.
    MountFailed,
    /// The container ends again and again.
    CrashLoop,
    /// The container runs and does not become ready.
    NotReady,
    /// The store runs and takes no saves.
    StoreReadOnly,
    /// No node was found, for a reason that the message tells.
    Unschedulable,
    // The embedder.
    /// The embedder does not answer.
    EmbedderUnreachable,
    /// The embedder serves something else than was declared.
    ModelMismatch,
    // Qdrant.
    /// No Qdrant is configured.
    NoQdrant,
    /// Qdrant does not check tokens.
    QdrantAuthOff,
    /// The Secret of Qdrant's key is missing or has no key.
    QdrantKeyMissing,
    /// Qdrant refuses the key.
    QdrantKeyRefused,
    /// Qdrant does not answer.
    QdrantUnreachable,
    /// It was not tried yet.
    NotProven,
    // The operator.
    /// The API server refused something the operator needs.
    Refused,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 56] = [
        Self::Ready,
        Self::Held,
        Self::Claimed,
        Self::Enforced,
        Self::Bound,
        Self::Resizing,
        Self::CollectionThere,
        Self::InProcess,
        Self::Running,
        Self::Answers,
        Self::Resolved,
        Self::Suspended,
        Self::Deleting,
        Self::Pending,
        Self::Starting,
        Self::AwaitingHolder,
        Self::VolumePending,
        Self::EmbedderStarting,
        Self::Idle,
        Self::InUse,
        Self::InvalidSpec,
        Self::CollectionTaken,
        Self::VolumeConflict,
        Self::Sealed,
        Self::EmbedderUnknown,
        Self::FingerprintChanged,
        Self::EmbedderInvalid,
        Self::RuntimeImageMissing,
        Self::ReadTargetMissing,
        Self::ReadTargetNotCorpus,
        Self::ReadTargetDoesNotConsent,
        Self::NameTaken,
        Self::NamespaceTerminating,
        Self::VolumeLost,
        Self::VolumeNotExpandable,
        Self::NoMatchingNode,
        Self::InsufficientGPU,
        Self::InsufficientResources,
        Self::UntoleratedTaint,
        Self::QuotaExceeded,
        Self::ImagePullFailed,
        Self::PodRefused,
        Self::MountFailed,
        Self::CrashLoop,
        Self::NotReady,
        Self::StoreReadOnly,
        Self::Unschedulable,
        Self::EmbedderUnreachable,
        Self::ModelMismatch,
        Self::NoQdrant,
        Self::QdrantAuthOff,
        Self::QdrantKeyMissing,
        Self::QdrantKeyRefused,
        Self::QdrantUnreachable,
        Self::NotProven,
        Self::Refused,
    ];

    /// As conditions and Events spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Held => "Held",
            Self::Claimed => "Claimed",
            Self::Enforced => "Enforced",
            Self::Bound => "Bound",
            Self::Resizing => "Resizing",
            Self::CollectionThere => "CollectionThere",
            Self::InProcess => "InProcess",
            Self::Running => "Running",
            Self::Answers => "Answers",
            Self::Resolved => "Resolved",
            Self::Suspended => "Suspended",
            Self::Deleting => "Deleting",
            Self::Pending => "Pending",
            Self::Starting => "Starting",
            Self::AwaitingHolder => "AwaitingHolder",
            Self::VolumePending => "VolumePending",
            Self::EmbedderStarting => "EmbedderStarting",
            Self::Idle => "Idle",
            Self::InUse => "InUse",
            Self::InvalidSpec => "InvalidSpec",
            Self::CollectionTaken => "CollectionTaken",
            Self::VolumeConflict => "VolumeConflict",
            Self::Sealed => "Sealed",
            Self::EmbedderUnknown => "EmbedderUnknown",
            Self::FingerprintChanged => "FingerprintChanged",
            Self::EmbedderInvalid => "EmbedderInvalid",
            Self::RuntimeImageMissing => "RuntimeImageMissing",
            Self::ReadTargetMissing => "ReadTargetMissing",
            Self::ReadTargetNotCorpus => "ReadTargetNotCorpus",
            Self::ReadTargetDoesNotConsent => "ReadTargetDoesNotConsent",
            Self::NameTaken => "NameTaken",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::VolumeLost => "VolumeLost",
            Self::VolumeNotExpandable => "VolumeNotExpandable",
            Self::NoMatchingNode => "NoMatchingNode",
            Self::InsufficientGPU => "InsufficientGPU",
            Self::InsufficientResources => "InsufficientResources",
            Self::UntoleratedTaint => "UntoleratedTaint",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ImagePullFailed => "ImagePullFailed",
            Self::PodRefused => "PodRefused",
            Self::MountFailed => "MountFailed",
            Self::CrashLoop => "CrashLoop",
            Self::NotReady => "NotReady",
            Self::StoreReadOnly => "StoreReadOnly",
            Self::Unschedulable => "Unschedulable",
            Self::EmbedderUnreachable => "EmbedderUnreachable",
            Self::ModelMismatch => lanekeeper_crds::conditions::REASON_MODEL_MISMATCH,
            Self::NoQdrant => "NoQdrant",
            Self::QdrantAuthOff => lanekeeper_crds::conditions::REASON_QDRANT_AUTH_OFF,
            Self::QdrantKeyMissing => "QdrantKeyMissing",
            Self::QdrantKeyRefused => "QdrantKeyRefused",
            Self::QdrantUnreachable => "QdrantUnreachable",
            Self::NotProven => "NotProven",
            Self::Refused => "Refused",
        }
    }

    /// The reverse of [`Reason::as_str`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether somebody should hear of it: it does not pass by itself within a normal start.
    #[must_use]
    pub const fn is_problem(self) -> bool {
        match self {
            Self::Ready
            | Self::Held
            | Self::Claimed
            | Self::Enforced
            | Self::Bound
            | Self::Resizing
            | Self::CollectionThere
            | Self::InProcess
            | Self::Running
            | Self::Answers
            | Self::Resolved
            | Self::Suspended
            | Self::Deleting
            | Self::Pending
            | Self::Starting
            | Self::AwaitingHolder
            | Self::VolumePending
            | Self::EmbedderStarting
            | Self::Idle
            | Self::InUse
            // Known from the chart's values; the condition says it.
            | Self::NoQdrant
            | Self::NotProven => false,
            Self::InvalidSpec
            | Self::CollectionTaken
            | Self::VolumeConflict
            | Self::Sealed
            | Self::EmbedderUnknown
            | Self::FingerprintChanged
            | Self::EmbedderInvalid
            | Self::RuntimeImageMissing
            | Self::ReadTargetMissing
            | Self::ReadTargetNotCorpus
            | Self::ReadTargetDoesNotConsent
            | Self::NameTaken
            | Self::NamespaceTerminating
            | Self::VolumeLost
            | Self::VolumeNotExpandable
            | Self::NoMatchingNode
            | Self::InsufficientGPU
            | Self::InsufficientResources
            | Self::UntoleratedTaint
            | Self::QuotaExceeded
            | Self::ImagePullFailed
            | Self::PodRefused
            | Self::MountFailed
            | Self::CrashLoop
            | Self::NotReady
            | Self::StoreReadOnly
            | Self::Unschedulable
            | Self::EmbedderUnreachable
            | Self::ModelMismatch
            | Self::QdrantAuthOff
            | Self::QdrantKeyMissing
            | Self::QdrantKeyRefused
            | Self::QdrantUnreachable
            | Self::Refused => true,
        }
    }
}

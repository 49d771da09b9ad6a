"""Words that an extract keeps: states, resources, GPU types and units, and the names of columns and keys.

Every other word of a log may be a name. A list that is too short only makes an extract harder to read.
"""

from __future__ import annotations

import re

from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.logs.formats.log_rows import BLANKS
from polluxsim.logs.formats.slurm_jobs import NO_LIMIT, STATES


def plain(name: str) -> str:
    """Return the name of a column or key in the form of the lists: small letters and digits only.

    >>> plain("Resource_List.ngpus"), plain("JobID")
    ('resourcelistngpus', 'jobid')
    """
    return "".join(character for character in name.lower() if character.isalnum())


def _words(text: str) -> frozenset[str]:
    """Return the words of a list."""
    return frozenset(text.split())


PEOPLE = _words(
    "user username userid iduser useridnumber uid owner group groupname groupid idgroup gid account accountname acct "
    "idassoc project projectname team tenant vc email mailuser organization department"
)
"""Columns and keys with people and groups. Their numbers are names too."""

NAMES = PEOPLE | _words(
    "name jobname submitname partition partitionname queue queuename localqueue clusterqueue qos cluster clustername "
    "nodelist nodename host hostname hosts exechost execvnode machine machineid machinename ip hostip podip batchhost "
    "allocnode submithost workdir workingdirectory directory cwd path script command cmd submitline comment "
    "admincomment systemcomment wckey reservation container image namespace priorityclassname priorityclassref "
    "serviceaccount serviceaccountname schedulername podname taskname instname instid workername executable message "
    "computer installation acknowledge information conversion note preemptable stdin stdout stderr"
)
"""Columns and keys with names and paths. All words in them are replaced, also words that are kept elsewhere."""

JOBS = _words("job jobid jobidraw id idjob jobnumber idarrayjob inst")
"""Columns and keys with a job. A job that is a number keeps it."""

NAMED_BELOW = _words("annotations comment env args labels")
"""Keys of JSON objects with names only."""

OWN_KEYS = _words(
    "labels annotations nodeselector matchlabels minresources resourceusage flavors capacity allocatable allocated "
    "requested"
)
"""Keys of JSON objects whose own keys a site chooses."""

OWN_KEYS_OF_RESOURCES = frozenset(("limits", "requests"))
"""Further keys of JSON objects whose own keys a site chooses, under the key `resources`."""

OWN_KEYS_BELOW = frozenset(("managedfields",))
"""Keys of JSON values in which all keys may be those of a site."""

RESOURCES = _words("tres gres resources")
"""Keys of JSON objects in which the key `name` holds a resource."""

UNITS = _words(
    "b k m g t p e kb mb gb tb pb ki mi gi ti pi ei kib mib gib tib kn mn gn tn kc mc gc tc n c u s sec min h hours d "
    "days w ms us"
)
"""Units directly behind a number, in small letters."""

_STATES = """
boot_fail ca cancelled by completed completing configuring dead deadline failed fail killed launch_failed node_fail
node_failed out_of_memory oom pass passed pending preempted queued reconfig_fail requeued requeue_fed requeue_hold
resizing revoked running signaling special_exit stage_out stopped succeeded success suspended terminated timeout
waiting aborted error complete completed inqueue unknown admitted quotareserved finished evicted podsready scheduled
initialized containersready ready succeeded noreservation dependency priority none true false null nan
"""

_RESOURCES = """
billing cpu cpus energy fs disk gres gpu gpus gputype license licenses mem memory mps node nodes shard vmem pages tpu
mig ncpus ngpus mpiprocs ppn ephemeral storage hugepages pods batch extern interactive sgp
nvidia amd intel tesla geforce quadro rtx gtx titan sxm sxm2 sxm3 sxm4 sxm5 pcie hbm2 hbm3 nvl misc any gpu
k40 k40m k80 m40 m60 p4 p40 p100 v100 v100s t4 t4g l4 l40 l40s a2 a10 a10g a16 a30 a40 a100 a800 h20 h100 h200 h800
gh200 b100 b200 gb200 mi50 mi100 mi210 mi250 mi250x mi300 mi300x g1 g2 g3 v100m16 v100m32 1080ti 2080ti 3090 4090
rtx2080ti rtx3090 rtx4090 rtx6000 rtx8000 size doctype html ls be burstable guaranteed besteffort
"""

_KINDS = """
list pod podgroup workload job jobset priorityclass pytorchjob tfjob mpijob xgboostjob paddlejob raycluster rayjob
replicaset statefulset deployment daemonset v1 v1alpha1 v1alpha2 v1beta1 v1beta2 v2alpha2 main
"""

_TIMES = "utc gmt infinity"

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"


def _value_words() -> frozenset[str]:
    """Return the words that may stand in values, in small letters, without the marks between them."""
    phrases = [*STATES, *NO_LIMIT, *BLANKS, *GPU_TYPES]
    for text in (_STATES, _RESOURCES, _KINDS, _TIMES):
        phrases += text.split()
    words = set[str]()
    for phrase in phrases:
        parts = re.split(r"[\s_/.-]+", phrase.lower())
        # A single letter is left out, because it may be the initial of a name.
        words.update(part for part in parts if len(part) > 1)
    return frozenset(words)


VALUE_WORDS = _value_words()
"""Words that stay in values, except in columns and keys of `NAMES`."""

PHRASES = (
    r"version https://git-lfs\.github\.com/spec/v\d+",
    r"oid sha256",
    r"(?:nvidia|amd|google|intel|habana|huawei|alibabacloud|aliyun|tencent)\.(?:com|ai)(?=/)",
    r"(?<![\w.-])(?:(?:kueue|scheduling|jobset)\.x-k8s\.io|(?:scheduling|batch)\.volcano\.sh|volcano\.sh|ray\.io"
    r"|(?:scheduling|metrics|(?:jobset|pod-group\.scheduling)\.sigs)\.k8s\.io|(?:training\.)?kubeflow\.org"
    r"|(?:(?:app|batch|node)\.)?kubernetes\.io|scheduling\.run\.ai|run\.ai)(?=/)",
    r"pod-group\.scheduling\.sigs\.k8s\.io",
    r"batch(?=/v1)",
    r"(?<=/)(?:job-name|pod-group-name|group-name|jobset-name|pod-group|cluster)\b",
    r"(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific)/[A-Za-z_]+(?:/[A-Za-z_]+)?",
    r"\(batch size(?= \d)",
    r"(?<=;)[A-Z](?=;)",
    rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?(?= (?:{_MONTH}|\d))",
    rf"\b{_MONTH}(?= +\d)",
)
"""Texts that stay in values as a whole: the openings of known files, domains of known programs, time
zones, types of records of PBS, and months."""

COLUMNS = frozenset(
    plain(name)
    for name in _words("""
Account AdminComment AllocCPUS AllocNodes AllocTRES AllocGRES AssocID AveCPU AveRSS BlockID Cluster Comment
Constraints ConsumedEnergy CPUTime CPUTimeRAW DerivedExitCode Elapsed ElapsedRaw Eligible End ExitCode Flags
GID Group JobID JobIDRaw JobName Layout MaxRSS MaxVMSize MCSLabel NCPUS NNodes NodeList NTasks Partition
Planned PlannedCPU Priority QOS QOSRAW Reason ReqCPUS ReqGRES ReqMem ReqNodes ReqTRES Reservation Restarts
Start State Submit SubmitLine Suspended SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInTot
UID User UserCPU WCKey WorkDir
JOBID PARTITION NAME USER ST STATE TIME NODES NODELIST(REASON) SUBMIT_TIME START_TIME TIME_LIMIT TRES_PER_NODE
timestamp duration num_gpus gpu_time cluster job_id submission_time num_gpu submit_time iterations model_name
interval batch_size iteration_time name time application num_replicas user vc gpu_num cpu_num node_num state
start_time end_time queue type fail_time stop_time mem_per_pod_GB shared_mem_per_pod cpu_milli memory_mib
gpu_milli gpu_spec qos pod_phase creation_time deletion_time scheduled_time id_job id_array_job id_user
nodes_alloc nodelist gres_used partition priority timelimit time_submit time_eligible time_start time_end
tres_alloc tres_req job submit eligible start end wait gpus tenant status gpu_type nodes gpus_per_task cpus
memory time_limit
""")
)
"""Names of columns of the known formats, by which a header is recognised."""

RECORD_KEYS = frozenset(
    plain(name)
    for name in _words("""
ctime qtime etime start end Exit_status run_count session alt_id resources_used.walltime resources_used.cput
resources_used.mem resources_used.vmem resources_used.ncpus Resource_List.ncpus Resource_List.ngpus
Resource_List.nodect Resource_List.nodes Resource_List.select Resource_List.walltime Resource_List.mem
Resource_List.place Resource_List.gpus jobobit resvname JobId JobState RunTime TimeLimit SubmitTime
EligibleTime StartTime EndTime NumNodes NumCPUs TRES Priority Requeue Restarts ExitCode
UnixStartTime TimeZoneString TimeZone MaxProcs MaxNodes MaxJobs MaxRecords MaxRuntime MaxMemory Version
StartTime EndTime Preemption Queues Partitions
""")
)
"""Keys before = or : in the records of PBS, of scontrol, and in the comments of the Standard Workload Format."""

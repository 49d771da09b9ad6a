from polluxsim.api.parts import cluster as cluster
from polluxsim.api.parts import config_dirs as config_dirs
from polluxsim.api.parts import policy as policy
from polluxsim.api.parts import profiles as profiles
from polluxsim.api.parts import settings as settings
from polluxsim.api.parts import workload as workload
from polluxsim.api.results import Comparison as Comparison
from polluxsim.api.results import Result as Result
from polluxsim.api.results import compare as compare
from polluxsim.api.results import read as read
from polluxsim.api.simulating import simulate as simulate
from polluxsim.api.simulating import start as start
from polluxsim.api.sweeps import Sweep as Sweep
from polluxsim.api.sweeps import read_sweep as read_sweep
from polluxsim.api.sweeps import sweep as sweep
from polluxsim.common.errors import PolluxSimError as PolluxSimError
from polluxsim.engine.scenario import Scenario as Scenario
from polluxsim.engine.settings import EngineSettings as EngineSettings
from polluxsim.engine.simulation import Simulation as Simulation
from polluxsim.hardware.clusters import Cluster as Cluster
from polluxsim.metrics.declared import Metric as Metric
from polluxsim.policies.contract.view import Decision as Decision
from polluxsim.policies.contract.view import Traits as Traits
from polluxsim.studies.arena.contest import ArenaRequest as ArenaRequest
from polluxsim.studies.arena.contest import arena as arena
from polluxsim.studies.log_calibration import CalibrateRequest as CalibrateRequest
from polluxsim.studies.log_calibration import calibrate as calibrate
from polluxsim.studies.log_replays import LogWhatIfRequest as LogWhatIfRequest
from polluxsim.studies.log_replays import log_whatif as log_whatif
from polluxsim.studies.sizing import SizeRequest as SizeRequest
from polluxsim.studies.sizing import size as size
from polluxsim.workloads.workload import Job as Job
from polluxsim.workloads.workload import Workload as Workload

__version__: str

def _end_interrupted(*_: object) -> None: ...

"""The nodes of the matrix by what takes the calls: a proxy, or an NRI plugin, for which the kubelet repeats starts."""

from collections.abc import Mapping

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.stamp import ANNOTATION, in_spec
from criproxy.errors import StatusCode
from criproxy.nri.messages import RESTARTS
from tests.matrix.cases import PLUGIN, PROXY
from tests.matrix.scene import Ran, Scene
from tests.matrix.trying import TryScene
from tests.nri.embedded import NEWER
from tests.nri.plugged_world import PluggedWorld


class PluginScene(PluggedWorld, Scene):
    """A node whose runtime asks criproxy over NRI."""

    def heard(self, error: RuntimeCallError) -> RuntimeCallError:
        """A refusal has reached the kubelet without its code, and with the sentence."""
        code = next((code for text, code in self.nri.codes.items() if error.details.endswith(f" desc = {text}")), None)
        if code is None:
            return error
        assert error.code is StatusCode.UNKNOWN
        return RuntimeCallError("", code, error.details, str(error))

    def next_attempt(
        self, request: api.CreateContainerRequest, error: RuntimeCallError
    ) -> api.CreateContainerRequest | None:
        """With the next number, where a CPU was not free yet."""
        if self.heard(error).code is not StatusCode.UNAVAILABLE:
            return None
        again = api.CreateContainerRequest.FromString(request.SerializeToString())
        again.config.metadata.attempt += 1
        again.config.annotations[RESTARTS] = str(again.config.metadata.attempt)
        return again

    def has_stamp(self, ran: Ran) -> bool:
        """It is in the specification only."""
        container = self.runtime.core.records.container(ran.container_id)
        return in_spec(container.id)[ANNOTATION] in container.added


class PluginTryScene(PluginScene, TryScene):
    """One that tries configurations, on a runtime with NRI's newer calls."""

    nri_version = NEWER


SCENES: Mapping[str, type[Scene]] = {PROXY: Scene, PLUGIN: PluginScene}
TRY_SCENES: Mapping[str, type[TryScene]] = {PROXY: TryScene, PLUGIN: PluginTryScene}

# SPDX-License-Identifier: Apache-2.0
"""A vLLM plugin that lets ECMooncakeConnector, with and without the cross-Encoder cache, run on CPU.

vLLM wants its Model Runner V2 for that, which needs a Triton back end that no CPU package has. With
AFTERIMAGE_PEERS_PLUGIN=1 the older runner does what the connector needs of it: the check at the start is lifted,
what the shared cache holds is not encoded, and steps without tokens run the connector too. Keys, identifiers,
resolver, publisher, transfers, scheduler and control channel stay vLLM's own.
"""

import dataclasses
import os


def register():
    if os.environ.get("AFTERIMAGE_PEERS_PLUGIN") == "1":
        lift_check()
        patch_runner()


def lift_check():
    """Has the configuration checked without the cache, and turns it on afterwards."""
    from vllm.distributed.ec_transfer.ec_connector.mooncake.config import MooncakeECConfig

    if hasattr(MooncakeECConfig, "afterimage_plugin"):  # plugins are registered in each process, and twice in some
        return
    original = MooncakeECConfig.from_vllm_config.__func__

    def from_vllm_config(cls, config):
        extra = config.ec_transfer_config.ec_connector_extra_config
        if extra.get("cross_encoder_cache") is not True:
            return original(cls, config)
        extra["cross_encoder_cache"] = False
        try:
            checked = original(cls, config)
        finally:
            extra["cross_encoder_cache"] = True
        return dataclasses.replace(checked, cross_encoder_cache=True)

    MooncakeECConfig.from_vllm_config = classmethod(from_vllm_config)
    MooncakeECConfig.afterimage_plugin = True


def patch_runner():
    import torch
    from vllm.distributed.ec_transfer import get_ec_transfer, has_ec_transfer
    from vllm.v1.outputs import ModelRunnerOutput, make_empty_encoder_model_runner_output
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as Runner

    if hasattr(Runner, "afterimage_plugin"):
        return
    batch, execute = Runner._batch_mm_inputs_from_scheduler, Runner.execute_model

    def without_hits(self, scheduled):
        """Leaves out of a batch what the connector has loaded."""
        hashes, *rest = batch(self, scheduled)
        keep = [i for i, h in enumerate(hashes) if h not in self.encoder_cache]
        if hashes:
            print(f"peers: encode {len(keep)} of {len(hashes)}", flush=True)
        return tuple([column[i] for i in keep] for column in (hashes, *rest))

    def run_connector(self, scheduled):
        return self.maybe_get_ec_connector_output(scheduled, encoder_cache=self.encoder_cache)

    @torch.inference_mode()
    def execute_model(self, scheduled, intermediate_tensors=None):
        if not has_ec_transfer():
            return execute(self, scheduled, intermediate_tensors)
        if not get_ec_transfer().is_consumer:
            self._update_states(scheduled)
            with run_connector(self, scheduled) as out:
                self._execute_mm_encoder(scheduled)
            return ModelRunnerOutput.with_ec_conn_output(make_empty_encoder_model_runner_output(scheduled), out)
        if not scheduled.total_num_scheduled_tokens:
            self._update_states(scheduled)
            with run_connector(self, scheduled) as out:
                pass
            return ModelRunnerOutput.with_ec_conn_output_only(out)
        return execute(self, scheduled, intermediate_tensors)

    Runner._batch_mm_inputs_from_scheduler, Runner.execute_model = without_hits, execute_model
    Runner.afterimage_plugin = True

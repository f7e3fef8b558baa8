"""Names that users' dashboards, scripts, pods and units have: those of metrics, annotations, commands and options."""

DAEMON_METRICS = {
    "counter": """
        accepted_connections_total adoptions_total bytes_total calls_total cancelled_held_calls_total
        config_reloads_total config_tries_ended_total conflicts_repaired_total controls_drift_total
        decisions_total device_allocations_total device_creates_refused_total device_creates_total
        device_evidence_total device_incidents_total device_quota_incidents_total device_quota_stops_total
        device_stops_total dial_failures_total drift_total dropped_log_lines_total exits_total failures_total
        fallbacks_total handler_errors_total inquiries_total late_starts_total pod_file_failures_total
        policy_failures_total policy_faults_total promotions_total protocol_errors_total refusals_total
        refused_calls_total resizes_refused_total resyncs_total store_failures_total unknown_outcomes_total
        unplaced_seconds_total unreadable_messages_total updates_total
    """,
    "gauge": """
        build_info bypass config_info config_loaded_timestamp_seconds config_problem
        config_try_remaining_seconds connections containers controls_troubles controls_up device_cards
        device_cards_given device_ids device_ids_given device_over_quota device_plugin_up device_unhealthy_cards
        exclusive_cpus free_cpus kubelet_last_call_timestamp_seconds misplaced_age_seconds misplaced_containers
        node_cpu_utilization_ratio node_memory_utilization_ratio oldest_held_call_seconds problems ready
        released resync_age_seconds runtime_up shared_cpus store_current store_failing_seconds
        undersized_containers unknown_containers unpromoted_containers updates_in_flight usage_watcher_up
        vgpu_free vgpu_memory_limit_bytes vgpu_memory_used_bytes vgpu_sm_limit_ratio vgpu_sm_ratio
        window_debt_bytes
    """,
    "histogram": "decision_seconds held_seconds loop_lag_seconds",
}
"""Kind → names behind ``criproxy_``."""
PLUGIN_METRICS = {
    "counter": """
        device_plugin_allocations_refused_total device_plugin_allocations_total device_plugin_failures_total
        device_plugin_kills_total device_plugin_preferences_failed_total device_plugin_preferences_late_total
        device_plugin_registrations_refused_total device_plugin_registrations_total device_plugin_reloads_total
        device_plugin_replaced_total
    """,
    "gauge": """
        build_info device_plugin_advertised device_plugin_cards device_plugin_config_problem
        device_plugin_daemon_reached device_plugin_events_problem device_plugin_healthy device_plugin_inventory_problem
        device_plugin_labels_problem device_plugin_pending_incidents device_plugin_pending_quota_incidents
        device_plugin_registered device_plugin_usage_problem
    """,
}
AGENT_METRICS = {
    "counter": "agent_failures_total agent_requests_total agent_watch_restarts_total",
    "gauge": """
        agent_api_silent_seconds agent_daemon_connected agent_rollout_phase agent_troubles agent_view_age_seconds
        agent_watch_current build_info
    """,
}
PROCESS_METRICS = {
    "counter": "cpu_seconds_total",
    "gauge": "max_fds open_fds resident_memory_bytes start_time_seconds virtual_memory_bytes",
}
"""Kind → names behind ``process_``, of all programs."""

ANNOTATIONS = """
    affinity anti-affinity balloon.balloons blockio-class class cold-start cpu-class cpu.preserve hide-hyperthreads
    irq-class memory-class memory-type memory.preserve pick-resources-by-hints pool.podpools prefer-cpu-priority
    prefer-isolated-cpus prefer-reserved-cpus prefer-shared-cpus rdt-class require-isolated-cpus scheduling-class
    strict.topologyhints topologyhints unlimited-burstable
"""
"""The keys of pods' annotations, without their domain."""
DOMAINS = ("criproxy.io", "cri-resource-manager.intel.com", "resource-policy.nri.io")
STAMP = """
    cpu_limit_milli cpu_milli cpu_period_us cpu_quota_us hints kubelet_files memory_limit_bytes
    memory_request_high_bytes memory_request_low_bytes of_pod pod_cpu_milli qos reservation stays
"""
"""The keys of the container annotation ``criproxy/placement``, which the next version reads, too."""

_STORED = "--control-socket --state-dir --host-root"
OPTIONS = {
    "agent": """
        --control-socket --default-device-configuration --device-configurations --first-contact --http
        --http-token-file --kubeconfig --labels --log-format --log-level --namespace --no-labels --no-taint
        --no-topology --node-name --taint --topology --topology-policy --topology-scope --wait-to-install
    """,
    "bypass": "--control-socket --format --state-dir",
    "check": "--format --group --host-root --hostname --no-machine --nri",
    "completion": "",
    "controls": "--host-root --log-format --log-level --put-back --socket --state-dir",
    "convert": "--node-selector",
    "device-plugin": """
        --cdi-annotation-prefix --cdi-feature-flags --config --config-file --container-driver-root --control-socket
        --dev-root --device-discovery-strategy --device-id-strategy --device-list-strategy --driver-root
        --driver-root-ctr-path --fail-on-init-error --gdrcopy-enabled --gds-enabled --group --host-root --hostname
        --http --imex-channel-ids --imex-required --kubelet-dir --kubelet-socket --log-format --log-level
        --mig-strategy --mofed-enabled --mps-root --name --named-config --nvidia-cdi-hook-path --nvidia-config
        --nvidia-ctk-path --nvidia-dev-root --nvidia-driver-root --pass-device-specs --register
        --shared-devices-allocation-policy
    """,
    "devices": f"{_STORED} --config --format --interval -w --watch",
    "events": f"{_STORED} -f --follow --format -n --namespace --since",
    "explain": f"{_STORED} --format",
    "fit": """
        --annotation --container --control-socket --cpu --device --format --gpu --label --memory -n --namespace --pod
        --qos
    """,
    "history": "--format --state-dir",
    "install": """
        --controls --dry-run --host-root --http --http-token-file --kubeconfig --node-kind --nri --policy
        --runtime-endpoint --serve-option --timeout
    """,
    "recommend": """
        --control-socket --current --format --max --metrics --min -n --namespace --pods -t --target --tolerance-down
        --tolerance-up
    """,
    "record": "--control-socket --for --force --max-size",
    "release": f"{_STORED} --format --runtime-endpoint --undo",
    "reload": "--control-socket --dry-run --format --keep --try",
    "schema": "--crds --policy",
    "serve": f"""
        {_STORED} --config --http --http-token-file --image-endpoint --image-listen --listen --log-format --log-level
        --nri --runtime-endpoint --trace-calls
    """,
    "simulate": """
        --explain --format --host-root --load --machine --policy -v --verbose
    """,
    "status": f"{_STORED} --check --exclusive --format --interval -n --namespace --pod --refused -w --watch",
    "support-bundle": f"""
        {_STORED} --anonymous --config --http -o --output --runtime-endpoint --with-state
    """,
    "top": f"{_STORED} --filter --interval --once",
    "topology": "--format --host-root",
    "uninstall": "--dry-run --force --host-root",
    "usage": "--control-socket --format --history --interval -w --watch",
    "who": f"{_STORED} --format",
}
"""Command → its options, beside ``-h`` and ``--help``."""
_CLUSTER = "--context --criproxy-namespace --kubeconfig -o --output --request-timeout"
KUBECTL_OPTIONS = {
    "events": f"{_CLUSTER} -f --follow -n --namespace --node --since",
    "explain": f"{_CLUSTER} -n --namespace --node",
    "fit": f"""
        {_CLUSTER} --annotation --container --cpu --device --gpu --label --memory -n --namespace --node --pod --qos
    """,
    "nodes": _CLUSTER,
    "status": f"""
        {_CLUSTER} --check --exclusive --interval -n --namespace --node --pod --refused -w --watch
    """,
    "usage": f"{_CLUSTER} --history --interval --node -w --watch",
    "who": f"{_CLUSTER} --node",
}
"""The same of ``kubectl criproxy``."""

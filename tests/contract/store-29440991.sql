-- criproxy.db as commit 29440991 wrote it: five containers, CPUs that are kept, and some of the history.
-- Made by `RichNode.run_pods` in conftest.py, with PYTHONPATH at that commit; from Connection.iterdump().
BEGIN TRANSACTION;
CREATE TABLE applied (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL
    , lifted INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "applied" VALUES('1ec243a00ee9192590d1b2c31b8747171ed788efb691fcdd05f3dbe1fea9a5c0','1-2','0',0);
INSERT INTO "applied" VALUES('5a69a1b916fa16bc5e4df32a3b7db136cd3672f1104bced68a410b3e0de62163','0,4-7','0-1',0);
INSERT INTO "applied" VALUES('9951ca11fc798edbfb5a78770042cf797dc5b24f6baf8bbcffc3839e99aa3ede','0,4-7','0-1',0);
INSERT INTO "applied" VALUES('fc5037eed5e13bb422c3a71ee360c0c790c877b1f2cf58d8efa823a492317bd9','0,4-7','0-1',0);
CREATE TABLE containers (
        key TEXT PRIMARY KEY, pod TEXT NOT NULL, name TEXT NOT NULL, attempt INTEGER NOT NULL,
        pod_name TEXT NOT NULL, namespace TEXT NOT NULL, qos TEXT NOT NULL, cpu_milli INTEGER NOT NULL,
        cpu_limit_milli INTEGER, memory_limit_bytes INTEGER, state TEXT NOT NULL, reservation TEXT NOT NULL
    , memory_request_low_bytes INTEGER, memory_request_high_bytes INTEGER, hints TEXT NOT NULL DEFAULT '', warm INTEGER NOT NULL DEFAULT 0, cpu_quota_us INTEGER, cpu_period_us INTEGER, stays INTEGER NOT NULL DEFAULT 0, desired TEXT NOT NULL DEFAULT '', missed TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
INSERT INTO "containers" VALUES('0b10cc26d1b7ef7b24ea42acebd9d2ffb915a9c705fd836105bcce1e5cc552cb','99603195f536b0e09776be70017177c4c1edb1e87dcd10e8dad92d8e11fcfd61','main',0,'ended','default','Guaranteed',1000,1000,67108864,'exited','r-a205e701099d2b54402b08098fbf3057',67108864,67108864,'',0,100000,100000,0,'','');
INSERT INTO "containers" VALUES('1ec243a00ee9192590d1b2c31b8747171ed788efb691fcdd05f3dbe1fea9a5c0','34d323b8635ec709a22ade8e29deebce7c8e43fde27771536b8d4c8af6190a9b','main',0,'owner','default','Guaranteed',2000,2000,268435456,'running','r-ea7d35752982e1c1d505d0ad22daa722',268435456,268435456,'',0,200000,100000,0,'','');
INSERT INTO "containers" VALUES('5a69a1b916fa16bc5e4df32a3b7db136cd3672f1104bced68a410b3e0de62163','04eeabe975baecf42acbb12bb4f926415bcc60c5d52c8f38d6f7813f05da8dbc','main',0,'sharer','default','Burstable',200,NULL,67108864,'running','r-1fd4f301a6ea54f8df48e2ce5617d098',0,67108864,'',0,NULL,NULL,0,'','');
INSERT INTO "containers" VALUES('9951ca11fc798edbfb5a78770042cf797dc5b24f6baf8bbcffc3839e99aa3ede','964f09281530cdf8a64d5a1e1085f913c03f984b4f87b8c0fdb3ea72d1461c6d','main',0,'best-effort','default','BestEffort',2,NULL,NULL,'running','r-379253834495e8d31c1679c309c73185',NULL,NULL,'',0,NULL,NULL,0,'','');
INSERT INTO "containers" VALUES('fc5037eed5e13bb422c3a71ee360c0c790c877b1f2cf58d8efa823a492317bd9','f71223eaaae512c9754c0b61be45ca5c2836582379d1c9818475221f739a0444','main',0,'vgpu','default','Burstable',100,NULL,NULL,'running','r-fa1786bb73cd2aa851fe3fb3b4b97bba',0,68719476,'0',0,NULL,NULL,0,'','');
CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at_s REAL NOT NULL, key TEXT NOT NULL, container TEXT NOT NULL, reasons TEXT NOT NULL
    , kind TEXT NOT NULL DEFAULT 'granted', life TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '{}', ended INTEGER NOT NULL DEFAULT 0);
INSERT INTO "decisions" VALUES(2,1.79592166394003963474e+09,'r-ea7d35752982e1c1d505d0ad22daa722','default/owner/main','default/owner/main gets exclusive CPUs 1-2: its pod is Guaranteed and it asks for 2
memory from NUMA node 0, near its CPUs','granted','r-ea7d35752982e1c1d505d0ad22daa722','{"cpus":"1-2","mems":"0","exclusive_cpus":"1-2","pool":""}',0);
INSERT INTO "decisions" VALUES(3,1.79592166394928288456e+09,'1ec243a00ee9192590d1b2c31b8747171ed788efb691fcdd05f3dbe1fea9a5c0','default/owner/main','the runtime created it with the id 1ec243a00ee9','created','r-ea7d35752982e1c1d505d0ad22daa722','{}',0);
INSERT INTO "decisions" VALUES(4,1.79592166397783541673e+09,'1ec243a00ee9192590d1b2c31b8747171ed788efb691fcdd05f3dbe1fea9a5c0','default/owner/main','it is running','started','r-ea7d35752982e1c1d505d0ad22daa722','{}',0);
INSERT INTO "decisions" VALUES(20,1.79592166412852573395e+09,'0b10cc26d1b7ef7b24ea42acebd9d2ffb915a9c705fd836105bcce1e5cc552cb','default/ended/main','it ended: its exclusive CPUs 3 are kept for its pod','exited','r-a205e701099d2b54402b08098fbf3057','{}',0);
INSERT INTO "decisions" VALUES(22,1.79592166413752484322e+09,'r-fa1786bb73cd2aa851fe3fb3b4b97bba','default/vgpu/main','npu: the device plugin has allocated criproxy.io/npu-1g to it: npu0/npu-1g/0
npu: npu0 is allocated to it (annotation)
npu: criproxy added /dev/npu0, so that updates of its cpuset do not take its cards away
npu: npu0 (0000:10:00.0) is next to NUMA node 0','devices','r-fa1786bb73cd2aa851fe3fb3b4b97bba','{"npu":"allocated,nodes-added","npu_ids":"npu0","npu_source":"annotation","npu_allocated":{"criproxy.io/npu-1g":{"ids":"npu0/npu-1g/0","source":"annotation"}},"npu_nodes":"/dev/npu0","npu_quota":{"profile":"npu-1g","memory_mib":1024,"cores_percent":0},"npu_pci":"0000:10:00.0","npu_numa":"0"}',0);
INSERT INTO "decisions" VALUES(27,1.79592166418106579783e+09,'r-37d0a11be1dbb1a4f32407d79febd241','default/too-big/main','container default/too-big/main asks for 6 exclusive CPUs, but only 4 are available; free: CPUs 4-7 on NUMA node 1; CPUs 3 are kept for default/ended, whose containers have ended and may come back','refused','r-37d0a11be1dbb1a4f32407d79febd241','{}',1);
CREATE TABLE former (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL, pool TEXT NOT NULL,
        home TEXT NOT NULL, home_mems TEXT NOT NULL, quota TEXT NOT NULL
    ) WITHOUT ROWID;
CREATE TABLE grants (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL
    , pool TEXT NOT NULL DEFAULT '', home TEXT NOT NULL DEFAULT '', home_mems TEXT NOT NULL DEFAULT '', quota TEXT NOT NULL DEFAULT 'left') WITHOUT ROWID;
INSERT INTO "grants" VALUES('1ec243a00ee9192590d1b2c31b8747171ed788efb691fcdd05f3dbe1fea9a5c0','1-2','0','1-2','','','','left');
INSERT INTO "grants" VALUES('5a69a1b916fa16bc5e4df32a3b7db136cd3672f1104bced68a410b3e0de62163','0,4-7','0-1','','','','','left');
INSERT INTO "grants" VALUES('9951ca11fc798edbfb5a78770042cf797dc5b24f6baf8bbcffc3839e99aa3ede','0,4-7','0-1','','','','','left');
INSERT INTO "grants" VALUES('fc5037eed5e13bb422c3a71ee360c0c790c877b1f2cf58d8efa823a492317bd9','0,4-7','0-1','','','','','left');
CREATE TABLE incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE kept (key TEXT PRIMARY KEY, cpus TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "kept" VALUES('00000000-0000-4000-8000-00656e646564','{"main": "3"}');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('configuration','7931c341122f8fe5');
INSERT INTO "meta" VALUES('saved_s','1795921664.8427596');
CREATE TABLE pods (
        key TEXT PRIMARY KEY, uid TEXT NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL,
        attempt INTEGER NOT NULL, qos TEXT NOT NULL, cgroup_parent TEXT NOT NULL
    , labels TEXT NOT NULL DEFAULT '{}', annotations TEXT NOT NULL DEFAULT '{}', cpu_total_milli INTEGER NOT NULL DEFAULT 0, stopped INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "pods" VALUES('04eeabe975baecf42acbb12bb4f926415bcc60c5d52c8f38d6f7813f05da8dbc','00000000-0000-4000-8000-736861726572','sharer','default',0,'Burstable','/kubepods/burstable/pod00000000-0000-4000-8000-736861726572','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-736861726572", "io.kubernetes.pod.name": "sharer", "io.kubernetes.pod.namespace": "default"}','{}',200,0);
INSERT INTO "pods" VALUES('34d323b8635ec709a22ade8e29deebce7c8e43fde27771536b8d4c8af6190a9b','00000000-0000-4000-8000-006f776e6572','owner','default',0,'Guaranteed','/kubepods/pod00000000-0000-4000-8000-006f776e6572','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-006f776e6572", "io.kubernetes.pod.name": "owner", "io.kubernetes.pod.namespace": "default"}','{}',2000,0);
INSERT INTO "pods" VALUES('5577f79e94a1195acd8e919baef7a4037ff036b158a464e6293bf11a7d678ba0','00000000-0000-4000-8000-746f6f2d6269','too-big','default',0,'Guaranteed','/kubepods/pod00000000-0000-4000-8000-746f6f2d6269','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-746f6f2d6269", "io.kubernetes.pod.name": "too-big", "io.kubernetes.pod.namespace": "default"}','{}',6000,0);
INSERT INTO "pods" VALUES('964f09281530cdf8a64d5a1e1085f913c03f984b4f87b8c0fdb3ea72d1461c6d','00000000-0000-4000-8000-626573742d65','best-effort','default',0,'BestEffort','/kubepods/besteffort/pod00000000-0000-4000-8000-626573742d65','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-626573742d65", "io.kubernetes.pod.name": "best-effort", "io.kubernetes.pod.namespace": "default"}','{}',2,0);
INSERT INTO "pods" VALUES('99603195f536b0e09776be70017177c4c1edb1e87dcd10e8dad92d8e11fcfd61','00000000-0000-4000-8000-00656e646564','ended','default',0,'Guaranteed','/kubepods/pod00000000-0000-4000-8000-00656e646564','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-00656e646564", "io.kubernetes.pod.name": "ended", "io.kubernetes.pod.namespace": "default"}','{}',1000,0);
INSERT INTO "pods" VALUES('f71223eaaae512c9754c0b61be45ca5c2836582379d1c9818475221f739a0444','00000000-0000-4000-8000-000076677075','vgpu','default',0,'Burstable','/kubepods/burstable/pod00000000-0000-4000-8000-000076677075','{"io.kubernetes.pod.uid": "00000000-0000-4000-8000-000076677075", "io.kubernetes.pod.name": "vgpu", "io.kubernetes.pod.namespace": "default"}','{}',100,0);
CREATE TABLE quota_incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX decisions_by_life ON decisions (life, id);
CREATE INDEX decisions_by_key ON decisions (key);
CREATE INDEX decisions_by_container ON decisions (container);
CREATE INDEX decisions_ended ON decisions (id) WHERE ended;
PRAGMA user_version = 16;
COMMIT;

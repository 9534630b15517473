import { Type } from 'typebox';
import { bytes, count, MIB, optional, required, type Setting } from './setting.ts';

const GIB = 1024 * MIB;

/** Settings of the control plane, which builds and runs deployments. */
export const deploymentSettings = {
  deploymentsDriver: required(
    'RUNLAKE_DEPLOYMENTS_DRIVER',
    Type.Union([Type.Literal('process'), Type.Literal('docker'), Type.Literal('kubernetes')]),
    'process',
    'Driver that runs deployments. `process`: agent servers on this machine, from source; `docker`, `kubernetes`: images.',
  ),
  deploymentsSourceStore: optional(
    'RUNLAKE_DEPLOYMENTS_SOURCE_STORE',
    Type.String({ pattern: '^s3://(?:[^\\s/@]+:[^\\s/@]+@)?[^\\s/@?]+(?:/[^\\s?]*)?(?:\\?\\S*)?$' }),
    'Bucket for uploaded sources, as s3://key-id:secret@bucket/prefix?region=…&endpoint=…; needed if processes on several machines build or accept them. Unset: a folder in RUNLAKE_DATA_DIR.',
    true,
  ),
  deploymentsMaxSourceBytes: required(
    'RUNLAKE_DEPLOYMENTS_MAX_SOURCE_BYTES',
    bytes(4 * GIB),
    200 * MIB,
    'Maximum size of an uploaded source, compressed; unpacked, it may have ten times this size.',
  ),
  deploymentsBuildTimeoutMs: required(
    'RUNLAKE_DEPLOYMENTS_BUILD_TIMEOUT_MS',
    count(1_000, 24 * 3_600_000),
    900_000,
    'Timeout of one build, in milliseconds.',
  ),
  deploymentsBuildsAtOnce: required(
    'RUNLAKE_DEPLOYMENTS_BUILDS_AT_ONCE',
    count(1, 256),
    2,
    'Maximum number of concurrent builds in one process.',
  ),
  deploymentsMaxBuildBytes: required(
    'RUNLAKE_DEPLOYMENTS_MAX_BUILD_BYTES',
    Type.Integer({ minimum: MIB, maximum: 1024 * GIB }),
    4 * GIB,
    'Maximum disk space of one build, with its packages.',
  ),
  deploymentsPortRange: optional(
    'RUNLAKE_DEPLOYMENTS_PORT_RANGE',
    Type.String({ pattern: '^\\d{1,5}-\\d{1,5}$' }),
    'Loopback ports for replicas of deployments, as first-last. Unset: free ports that the operating system picks.',
  ),
} as const satisfies Record<string, Setting>;

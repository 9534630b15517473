/**
 * The port of deployment drivers. A driver starts agent servers: `process` on this host, `docker` and `kubernetes`
 * elsewhere. The host (`host.ts`) decides which replicas a driver starts and when it stops them.
 */
export interface DeploymentDriver {
  readonly name: DriverName;
  /**
   * Starts a replica. Resolves when `/ok` of the replica responds and all graphs are loaded.
   *
   * @throws DEPLOYMENT_START_FAILED or DEPLOYMENT_INVALID with a reason for the owner of the deployment, and other errors
   *   if the start may succeed later. A rejected call, or one whose signal is aborted, leaves nothing running, except
   *   replicas that outlive their host: after other errors these are left to the next start, and if the reason of the
   *   signal is REVISION_TAKEN_OVER, to the host that takes them over.
   */
  start(spec: ReplicaSpec, options: StartOptions): Promise<StartedReplica>;
  /**
   * Removes replicas that killed hosts have left running and that no host holds or is to take over. First lists what is
   * running, then calls `readNeeded`, so that a replica that is started meanwhile stays. Leaves the rest if `signal` is
   * aborted. Absent if replicas never outlive their host.
   */
  removeAbandoned?(readNeeded: () => Promise<readonly ReplicaName[]>, signal: AbortSignal): Promise<void>;
}

/** Identity of a replica. */
export type ReplicaName = Pick<ReplicaSpec, 'deploymentId' | 'revisionId' | 'number'>;

export type DriverName = 'process' | 'docker' | 'kubernetes';

export interface StartOptions {
  readonly signal: AbortSignal;
  /** Receives lines of output until the replica has ended. */
  readonly onLog: (line: string) => void;
}

export interface ReplicaSpec {
  readonly deploymentId: string;
  readonly revisionId: string;
  readonly name: string;
  /** Name of the deployment in addresses, unique in the installation: letters, digits and hyphens. */
  readonly slug: string;
  /** Number of the replica in its revision, starting at 1. */
  readonly number: number;
  /** Path of the built langgraph.json; unset if the revision is an image. */
  readonly agentsFile?: string;
  /** Image of the revision; unset if the revision was built from source. */
  readonly imageUri?: string;
  /** Environment variables of graph code: the secrets of the deployment. */
  readonly environment: Readonly<Record<string, string>>;
  readonly secretReferences: readonly SecretReference[];
  readonly resources: ResourceSpec;
}

/** A value of an existing Kubernetes Secret that becomes an environment variable. Fields as in the control plane API. */
export interface SecretReference {
  readonly name: string;
  readonly secret_name: string;
  readonly secret_key: string;
}

/** `resource_spec` of the control plane API. Drivers ignore fields that they do not support. */
export interface ResourceSpec {
  readonly min_scale?: number | null;
  readonly max_scale?: number | null;
  readonly cpu?: number | null;
  readonly cpu_limit?: number | null;
  readonly memory_mb?: number | null;
  readonly memory_limit_mb?: number | null;
  readonly labels?: Readonly<Record<string, string>> | null;
  readonly annotations?: Readonly<Record<string, string>> | null;
  readonly service_account_name?: string | null;
  readonly image_pull_secrets?: readonly { readonly name: string }[] | null;
  readonly volumes?: readonly Readonly<Record<string, unknown>>[] | null;
  readonly volume_mounts?: readonly Readonly<Record<string, unknown>>[] | null;
  readonly init_containers?: readonly Readonly<Record<string, unknown>>[] | null;
  readonly sidecars?: readonly Readonly<Record<string, unknown>>[] | null;
}

export interface StartedReplica {
  /** Address of the replica for requests of this installation. */
  readonly url: string;
  /** Whether the replica responds. Never rejects. */
  isHealthy(signal: AbortSignal): Promise<boolean>;
  /** Drains: refuses new runs, waits up to `drainMs` for running requests, then ends the replica. Idempotent. */
  stop(drainMs: number): Promise<void>;
  /**
   * Leaves the replica to another host, which takes it over. Absent if replicas never outlive their host: the other
   * host starts a replica of its own.
   */
  detach?(): void;
  /** Resolves with the reason when the replica has ended by itself. */
  readonly ended: Promise<string>;
}

import type { EngineProcess } from '../../infra/embedded/supervise-engine.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { StackPartName } from './stack-settings.ts';
import type { Tools } from './tools.ts';

/** Paths of installed files, for `launch`. They are strings, because they are sent to another process. */
export type Installation = Readonly<Record<string, string>>;

/** Connection values of a running part: addresses, names and passwords. */
export type PartValues = Readonly<Record<string, string>>;

export interface LaunchOptions {
  /**
   * The stack's folder for all parts. A part uses only `<folder>/<its name>`, which is empty before the first launch.
   */
  readonly folder: string;
  readonly installation: Installation;
  /** Ports of the part; there are `portCount` of them, the same at each launch. The first is the client port. */
  readonly ports: readonly number[];
  /** Returns the random secret with this name, the same at each launch. */
  readonly secret: (name: string) => string;
  readonly log: (line: string) => void;
  readonly logger: Logger;
  /** Whether a fast start is more important than throughput. */
  readonly isShortLived?: boolean;
}

/** One server of the native stack. */
export interface Part {
  readonly name: StackPartName;
  readonly title: string;
  readonly portCount: number;
  /**
   * Downloads missing files into the cache, and returns their paths.
   *
   * @throws STACK_TOOL_MISSING, STACK_DOWNLOAD_FAILED, STACK_CHECKSUM_MISMATCH, ENGINE_PACKAGE_MISSING.
   */
  install(tools: Tools): Promise<Installation>;
  /**
   * Starts one process of the server, and first kills the process that a killed supervisor left on the same folder.
   *
   * @throws ENGINE_START_FAILED; the process has exited then.
   */
  launch(options: LaunchOptions): Promise<EngineProcess>;
  values(options: LaunchOptions): PartValues;
  /** Probes readiness: returns `ready`, or the reason why the server is not ready. Never rejects. */
  check(values: PartValues): Promise<string>;
  /** Returns the settings that make `runlake` use this part. */
  exports(values: PartValues): PartValues;
}

import type { StackPartName } from '../config/stack-settings.ts';
import type { EngineProcess } from '../embedded/supervise-engine.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Tools } from './tools.ts';

/** Paths that `install` found or made, for `start`; plain text, because they travel to another process. */
export type Installation = Readonly<Record<string, string>>;

/** What a client has to know of a running part: addresses, names and passwords. */
export type PartValues = Readonly<Record<string, string>>;

export interface LaunchOptions {
  /** The stack's folder for parts; a part keeps to `<folder>/<its name>`, which is empty before the first launch. */
  readonly folder: string;
  readonly installation: Installation;
  /** As many as the part asks for; the first one is that of its clients. The same ones at each launch. */
  readonly ports: readonly number[];
  /** As random as a password; the same at each launch. */
  readonly secret: (name: string) => string;
  readonly log: (line: string) => void;
  readonly logger: Logger;
  /** Whether it matters more how soon it starts than how fast it is later. */
  readonly isShortLived?: boolean;
}

/** One server of the native stack. */
export interface Part {
  readonly name: StackPartName;
  readonly title: string;
  readonly portCount: number;
  /**
   * Downloads what is missing in the cache, and says where it is.
   *
   * @throws STACK_TOOL_MISSING, STACK_DOWNLOAD_FAILED, STACK_CHECKSUM_MISMATCH, ENGINE_PACKAGE_MISSING.
   */
  install(tools: Tools): Promise<Installation>;
  /**
   * Starts one incarnation of the server, after ending one that a killed supervisor left on the same folder.
   *
   * @throws ENGINE_START_FAILED; then no process is left.
   */
  launch(options: LaunchOptions): Promise<EngineProcess>;
  values(options: LaunchOptions): PartValues;
  /** Whether it can work: `ready`, or why not yet. Never rejects. */
  check(values: PartValues): Promise<string>;
  /** Variables that point `runlake` at it. */
  exports(values: PartValues): PartValues;
}

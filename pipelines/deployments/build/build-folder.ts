/** The folder of a build: its files, and the limits of time and disk space. */
import { lstat, readFile, realpath, stat } from 'node:fs/promises';
import { dirname, relative, sep } from 'node:path';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ProcessAccount } from '../../../infra/isolation/process-accounts.ts';
import { measureShared, measureTree } from '../../../infra/isolation/untrusted-tree.ts';

/** Maximum size of a file that Runlake itself reads, such as a lock file. */
const maxFileBytes = 64 * 1024 ** 2;

/**
 * Resolves the links of a path in a source. Runlake may read files that the source must not read.
 *
 * @param root real path of the folder.
 * @param shown the path in error messages.
 * @throws BUILD_FAILED if there is no file, or if it is outside of the folder.
 */
export async function resolveInside(root: string, path: string, shown: string): Promise<string> {
  const real = await realpath(path).catch((cause: unknown) => {
    throw runlakeError('BUILD_FAILED', { reason: `The source has no file ${shown}` }, { cause });
  });
  if (!real.startsWith(root + sep)) throw createOutsideError(shown);
  if (!(await stat(real)).isFile()) throw createBuildError(`${shown} is not a file`);
  return real;
}

/**
 * Checks a path in a source at which there is no file: it must be in the folder, and no part of it may be a link. Otherwise
 * a process could create the file after the build, as a link to any file. The parameters are those of
 * {@link resolveInside}.
 *
 * @throws BUILD_FAILED
 */
export async function requireMissingInside(root: string, path: string, shown: string): Promise<void> {
  for (let part = path; part !== root; part = dirname(part)) {
    const isInside = part.startsWith(root + sep);
    const isLink = isInside && (await lstat(part).catch(() => undefined))?.isSymbolicLink();
    if (!isInside || isLink) throw createOutsideError(shown);
  }
}

const createOutsideError = (shown: string) => createBuildError(`${shown} is outside of the source`);

/**
 * Checks a folder in which a command of a build runs.
 *
 * @param root folder of the build.
 * @throws BUILD_FAILED if it does not exist, or if it is outside of the folder of the build.
 */
export async function checkFolder(root: string, folder: string): Promise<void> {
  const real = await realpath(folder).catch((cause: unknown) => {
    throw runlakeError('BUILD_FAILED', { reason: 'The source has no langgraph.json' }, { cause });
  });
  const realRoot = await realpath(root);
  if (real !== realRoot && !real.startsWith(realRoot + sep))
    throw createBuildError(`${relative(root, folder)} is outside of the source`);
}

/**
 * Reads a file of a source. The parameters and errors are those of {@link resolveInside}; BUILD_FAILED if it is too
 * large.
 */
export async function readInside(
  root: string,
  path: string,
  shown: string,
  maxBytes: number = maxFileBytes,
): Promise<string> {
  const real = await resolveInside(root, path, shown);
  const { size } = await stat(real);
  if (size > maxBytes) throw createBuildError(`${shown} is larger than ${maxBytes} bytes`);
  return readFile(real, 'utf8');
}

export function createBuildError(reason: string): RunlakeError {
  return runlakeError('BUILD_FAILED', { reason });
}

const measureIntervalMs = 3_000;

/**
 * The limits of time and disk space of one build. The latter covers the folders that the build should write to and, if
 * it has an account, what it creates elsewhere; without one, those files are not distinguished from others.
 */
export class BuildLimit {
  readonly signal: AbortSignal;
  readonly #exceeded = new AbortController();
  readonly #given: AbortSignal;
  /** Folders with the disk space that they used before the build. */
  readonly #folders: { readonly path: string; readonly formerBytes: number }[] = [];
  readonly #maxBytes: number;
  readonly #account: Pick<ProcessAccount, 'uid'> | undefined;
  readonly #timers: NodeJS.Timeout[];
  #isChecking = false;

  constructor(
    config: Pick<Config, 'deploymentsBuildTimeoutMs' | 'deploymentsMaxBuildBytes'>,
    { signal: given, account }: { readonly signal: AbortSignal; readonly account: ProcessAccount | undefined },
  ) {
    this.#given = given;
    this.#account = account;
    this.#maxBytes = config.deploymentsMaxBuildBytes;
    this.signal = AbortSignal.any([given, this.#exceeded.signal]);
    const timeoutMs = config.deploymentsBuildTimeoutMs;
    const reason = `The build took longer than ${timeoutMs} ms (RUNLAKE_DEPLOYMENTS_BUILD_TIMEOUT_MS)`;
    this.#timers = [
      setTimeout(() => this.#exceeded.abort(runlakeError('BUILD_FAILED', { reason })), timeoutMs),
      setInterval(() => void this.#checkAgain(), measureIntervalMs),
    ];
  }

  /** Includes a folder. What it contains already does not count. */
  async include(path: string): Promise<void> {
    this.#folders.push({ path, formerBytes: await measureTree(path) });
  }

  /** @throws BUILD_FAILED if the build uses too much disk space */
  async check(): Promise<void> {
    let bytes = this.#account === undefined ? 0 : await measureShared(this.#account.uid);
    for (const { path, formerBytes } of this.#folders) bytes += Math.max((await measureTree(path)) - formerBytes, 0);
    if (bytes <= this.#maxBytes) return;
    const limit = `${this.#maxBytes} bytes (RUNLAKE_DEPLOYMENTS_MAX_BUILD_BYTES)`;
    const error = runlakeError('BUILD_FAILED', { reason: `The build uses more disk space than ${limit}` });
    this.#exceeded.abort(error);
    throw error;
  }

  /** Checks while the build runs. What cannot be measured then is measured again at its end. */
  async #checkAgain(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    await this.check().catch(() => undefined);
    this.#isChecking = false;
  }

  /** Returns the cause of a failed build. */
  explain(error: unknown): unknown {
    if (this.#given.aborted) return this.#given.reason;
    if (this.#exceeded.signal.aborted) return this.#exceeded.signal.reason;
    if (isRunlakeError(error)) return error;
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) return error;
    return runlakeError('BUILD_FAILED', { reason: `The build folder cannot be used (${code})` }, { cause: error });
  }

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}

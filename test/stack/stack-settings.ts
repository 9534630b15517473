import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isCi } from '../house/prerequisites.ts';

/** Servers of the native stack, in display order. */
export const stackParts = ['kafka', 'registry', 'redis', 's3', 'clickhouse', 'postgres'] as const;
export type StackPartName = (typeof stackParts)[number];

type Environment = Readonly<Record<string, string | undefined>>;

/** Settings of the native stack for development and tests. Runlake itself does not read them. */
export interface StackSettings {
  /**
   * `RUNLAKE_STACK_DIR`: data, logs and addresses of the running stack. Default: `.runlake-stack` in the working directory.
   */
  readonly folder: string;
  /** `RUNLAKE_STACK_CACHE_DIR`: downloads. Default: `runlake/stack` in the user's cache directory. */
  readonly cacheFolder: string;
  /** `RUNLAKE_STACK_PARTS`: names of the servers to start, separated by commas. Default: all. */
  readonly parts: readonly StackPartName[];
  /** `RUNLAKE_STACK_KAFKA_PORT` and so on, one for each server. The default, and 0, mean a free port. */
  readonly ports: Readonly<Record<StackPartName, number>>;
  /** `RUNLAKE_STACK_CLICKHOUSE_SHARDS`: number of ClickHouse servers, 1 (default) or 2; two servers form a cluster. */
  readonly clickhouseShards: number;
  /** `CI`: if set, a server that cannot be installed is an error; otherwise it is skipped. */
  readonly isCi: boolean;
  /** The unchanged environment, which is passed to the programs that download. */
  readonly environment: Environment;
}

export const portVariable = (part: StackPartName): string => `RUNLAKE_STACK_${part.toUpperCase()}_PORT`;

/**
 * Loads the settings.
 *
 * @throws INVALID_CONFIG with all errors at once.
 */
export function loadStackSettings(environment: Environment = process.env): StackSettings {
  const errors: string[] = [];
  const read = (variable: string) => environment[variable]?.trim() || undefined;
  const ports = stackParts.map((part) => {
    const text = read(portVariable(part)) ?? '0';
    const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
    if (!(port <= 65_535)) errors.push(`${portVariable(part)}='${text}': must be a port from 0 to 65535`);
    return [part, port] as const;
  });
  const names = read('RUNLAKE_STACK_PARTS')?.split(/[\s,]+/) ?? stackParts;
  for (const name of names) {
    if (!stackParts.some((part) => part === name)) {
      errors.push(`RUNLAKE_STACK_PARTS: '${name}' is not one of ${stackParts.join(', ')}`);
    }
  }
  const shards = read('RUNLAKE_STACK_CLICKHOUSE_SHARDS') ?? '1';
  if (!/^[12]$/.test(shards)) errors.push(`RUNLAKE_STACK_CLICKHOUSE_SHARDS='${shards}': must be 1 or 2`);
  if (errors.length > 0) {
    throw runlakeError('INVALID_CONFIG', {
      count: errors.length,
      errors: errors.map((line) => `  - ${line}`).join('\n'),
    });
  }
  const userCache = read('XDG_CACHE_HOME') ?? join(homedir(), '.cache');
  return {
    folder: resolve(read('RUNLAKE_STACK_DIR') ?? '.runlake-stack'),
    cacheFolder: resolve(read('RUNLAKE_STACK_CACHE_DIR') ?? join(userCache, 'runlake', 'stack')),
    parts: stackParts.filter((part) => names.includes(part)),
    ports: Object.fromEntries(ports) as Record<StackPartName, number>,
    clickhouseShards: Number(shards),
    isCi: isCi(environment),
    environment,
  };
}

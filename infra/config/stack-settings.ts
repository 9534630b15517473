import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fault } from '../errors/runlake-error.ts';

/** Parts of the native stack, in the order in which they are listed. */
export const stackParts = ['kafka', 'registry', 'redis', 's3', 'clickhouse', 'postgres'] as const;
export type StackPartName = (typeof stackParts)[number];

type Environment = Readonly<Record<string, string | undefined>>;

/** What the native stack of developers and tests can be told. Runlake itself reads none of it. */
export interface StackSettings {
  /** `RUNLAKE_STACK_DIR`: data, logs and addresses of the running stack. Default: `.runlake-stack` in the working folder. */
  readonly folder: string;
  /** `RUNLAKE_STACK_CACHE_DIR`: downloads. Default: `runlake/stack` in the user's cache folder. */
  readonly cacheFolder: string;
  /** `RUNLAKE_STACK_PARTS`: names, separated by commas. Default: all. */
  readonly parts: readonly StackPartName[];
  /** `RUNLAKE_STACK_KAFKA_PORT` and so on for every part. Default, and 0: a free one. */
  readonly ports: Readonly<Record<StackPartName, number>>;
  /** `CI`: a part that cannot be had is a failure. */
  readonly isCi: boolean;
  /** The environment as it is, for the programs that download. */
  readonly environment: Environment;
}

export const portVariable = (part: StackPartName): string => `RUNLAKE_STACK_${part.toUpperCase()}_PORT`;

/** Whether `variable` is one of the stack's, which Runlake leaves alone. */
export const isStackVariable = (variable: string): boolean => variable.startsWith('RUNLAKE_STACK_');

/** @throws INVALID_CONFIG that lists all faults together. */
export function loadStackSettings(environment: Environment = process.env): StackSettings {
  const faults: string[] = [];
  const read = (variable: string) => environment[variable]?.trim() || undefined;
  const ports = stackParts.map((part) => {
    const text = read(portVariable(part)) ?? '0';
    const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
    if (!(port <= 65_535)) faults.push(`${portVariable(part)}='${text}': must be a port, 0 to 65535`);
    return [part, port] as const;
  });
  const names = read('RUNLAKE_STACK_PARTS')?.split(/[\s,]+/) ?? stackParts;
  for (const name of names) {
    if (!stackParts.some((part) => part === name)) {
      faults.push(`RUNLAKE_STACK_PARTS: '${name}' is none of ${stackParts.join(', ')}`);
    }
  }
  if (faults.length > 0) {
    throw fault('INVALID_CONFIG', { count: faults.length, faults: faults.map((line) => `  - ${line}`).join('\n') });
  }
  const userCache = read('XDG_CACHE_HOME') ?? join(homedir(), '.cache');
  return {
    folder: resolve(read('RUNLAKE_STACK_DIR') ?? '.runlake-stack'),
    cacheFolder: resolve(read('RUNLAKE_STACK_CACHE_DIR') ?? join(userCache, 'runlake', 'stack')),
    parts: stackParts.filter((part) => names.includes(part)),
    ports: Object.fromEntries(ports) as Record<StackPartName, number>,
    isCi: /^(true|1|yes|on)$/i.test(read('CI') ?? ''),
    environment,
  };
}

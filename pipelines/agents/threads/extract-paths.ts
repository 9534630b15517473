import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Thread } from './thread.ts';

const roots = ['values', 'metadata', 'config', 'interrupts'] as const;
const step = /\.([^.[\]]+)|\[(-?\d{1,9})\]/y;

/** The fields of a thread that the paths start with. */
export function rootsOf(paths: Readonly<Record<string, string>>): string[] {
  return Object.values(paths).flatMap((path) => parsePath(path)?.slice(0, 1).map(String) ?? []);
}

/** Extracts values of a thread by paths such as `values.messages[-1].content`; null if a path leads to no value. */
export function extractPaths(
  thread: Partial<Thread>,
  paths: Readonly<Record<string, string>>,
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(paths).map(([alias, path]) => [alias, valueAt(thread, path)]));
}

/**
 * Validates paths, so that a request fails before any thread is read.
 *
 * @throws INVALID_REQUEST that names each invalid path.
 */
export function checkPaths(paths: Readonly<Record<string, string>>): void {
  const fields = Object.entries(paths).flatMap(([alias, path]) =>
    parsePath(path) === undefined
      ? [
          {
            loc: ['body', 'extract', alias],
            msg: `must be a path that begins with one of ${roots.join(', ')}`,
            type: 'path',
          },
        ]
      : [],
  );
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields });
}

function valueAt(thread: Partial<Thread>, path: string): unknown {
  let at: unknown = thread;
  for (const key of parsePath(path) ?? []) {
    if (Array.isArray(at)) at = typeof key === 'number' ? at.at(key) : undefined;
    else at = isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return at ?? null;
}

/** Parses a path into field names and list indexes; undefined if it is not valid. */
function parsePath(path: string): (string | number)[] | undefined {
  const root = roots.find((name) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  if (root === undefined) return undefined;
  const steps: (string | number)[] = [root];
  step.lastIndex = root.length;
  while (step.lastIndex < path.length) {
    const match = step.exec(path);
    if (match === null) return undefined;
    steps.push(match[1] ?? Number(match[2]));
  }
  return steps;
}

function isObject(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}

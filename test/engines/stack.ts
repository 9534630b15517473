import { inject } from 'vitest';
import { skipWithout } from '../house/prerequisites.ts';
import type { StackPartName } from '../stack/stack-settings.ts';

/**
 * Returns addresses, names and passwords of a part of the native stack (`make stack`), for tests that need only that
 * server; `test/stack/parts` lists the fields of each part. If the part is not running: `undefined`, with the reason
 * printed; in CI an error.
 *
 * const kafka = stackPart('kafka');
 *
 * describe.runIf(kafka)('the log on Kafka', () => { … kafka?.brokers … });
 */
export function stackPart(name: StackPartName): Readonly<Record<string, string>> | undefined {
  const part = inject('stackParts')[name];
  if (part?.status === 'up') return part.values;
  const reason = part ? `${name} is ${part.status}: ${part.reason}` : `${name} is not up: make stack`;
  skipWithout(reason);
  return undefined;
}

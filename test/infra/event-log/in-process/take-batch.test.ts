import { expect, it } from 'vitest';
import { dequeueBatch } from '../../../../infra/event-log/in-process/take-batch.ts';

/** Builds a queue from a text in which `a3` is a request of 3 bytes of organisation `a`. */
function parseQueue(text: string) {
  return text
    .split(' ')
    .filter((name) => name !== '')
    .map((name) => ({ name, tenantId: name.slice(0, 1), bytes: Number(name.slice(1)) }));
}
const namesOf = (queue: readonly { readonly name: string }[]) => queue.map(({ name }) => name).join(' ');

it.each([
  ['the whole queue of one organisation', 'a1 a2 a1', 'a1 a2 a1', ''],
  ['up to the byte limit', 'a2 a2 a1', 'a2 a2', 'a1'],
  ['one request, however large', 'a7 a1', 'a7', 'a1'],
  ['other organisations before a long queue', 'a1 a1 a1 a1 a1 a1 b1 c1', 'a1 b1 c1 a1', 'a1 a1 a1 a1'],
  ['the organisation with the fewest bytes next', 'a3 a3 b1 b1 b1', 'a3 b1', 'a3 b1 b1'],
  ['many small requests with a large one', 'a3 b0.1 b0.1 b0.1', 'a3 b0.1 b0.1 b0.1', ''],
  ['nothing of excluded organisations', 'a1 b1 a1 c1', 'b1', 'a1 a1 c1', 'ac'],
  ['nothing from an empty queue', '', '', ''],
])('takes %s', (_what, before, taken, left, excludedTenantIds = '') => {
  const queue = parseQueue(before);
  const isExcluded = (tenantId: string | undefined) => excludedTenantIds.includes(String(tenantId));
  expect(namesOf(dequeueBatch(queue, 4, isExcluded))).toBe(taken);
  expect(namesOf(queue)).toBe(left);
});

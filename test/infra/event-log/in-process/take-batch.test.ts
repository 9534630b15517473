import { expect, it } from 'vitest';
import { takeBatch } from '../../../../infra/event-log/in-process/take-batch.ts';

const unit = 256 * 1024;
const limits = { rows: 100, bytes: 64 * unit };

/** `a3` is a request of 3 units (of 256 KiB) of organisation `a`. */
function queueOf(text: string) {
  return text
    .split(' ')
    .filter((name) => name !== '')
    .map((name) => ({ name, tenantId: name.slice(0, 1), rows: 10, bytes: Number(name.slice(1)) * unit }));
}
const namesOf = (queue: readonly { readonly name: string }[]) => queue.map(({ name }) => name).join(' ');

it.each([
  ['the whole queue of one organisation', 'a1 a2 a3', false, 'a1 a2 a3', ''],
  ['up to the byte limit', 'a40 a20 a10', false, 'a40 a20', 'a10'],
  ['up to the row limit', Array(12).fill('a1').join(' '), false, Array(10).fill('a1').join(' '), 'a1 a1'],
  ['a small batch while the log is shared', 'a1 a1 a1 a1 a1 a1', true, 'a1 a1 a1 a1', 'a1 a1'],
  ['one request, however large', 'a70 a1', true, 'a70', 'a1'],
  ['other organisations before a long queue', 'a1 a1 a1 a1 a1 a1 b1 c1', true, 'a1 a1 b1 c1', 'a1 a1 a1 a1'],
  ['the organisation with the fewest bytes next', 'a3 a3 b1 b1 b1', true, 'a3 b1', 'a3 b1 b1'],
  ['many small requests with a large one', 'a3 b0.1 b0.1 b0.1', true, 'a3 b0.1 b0.1 b0.1', ''],
  ['nothing of organisations with a batch in flight', 'a1 b1 a1 c1', true, 'b1', 'a1 a1 c1', 'ac'],
  ['nothing from an empty queue', '', true, '', ''],
])('takes %s', (_what, before, isShared, taken, left, exceptFor = '') => {
  const queue = queueOf(before);
  expect(namesOf(takeBatch(queue, limits, { isShared, exceptFor: new Set(exceptFor) }))).toBe(taken);
  expect(namesOf(queue)).toBe(left);
});

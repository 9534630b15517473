import { randomUUID } from 'node:crypto';
import { Client as NewClient } from 'langsmith-0-12';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

/** The rubric of annotation queues. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const options = { autoBatchTracing: false, callerOptions: { maxRetries: 0 } };
const client = forSuite(() => openClient(api, acme.adminKey, options));
const newClient = forSuite(() => openClient(api, acme.adminKey, options, NewClient));

const first = {
  feedback_key: 'kind',
  description: 'Which é?',
  value_descriptions: { a: 'one', b: 'two \u0000' },
  score_descriptions: { '0': 'bad', '1': 'good' },
  is_required: true,
  is_assertion: false,
};
const rule = { key: 'kind', op: 'is_one_of' as const, values: [1, 2.5] };
const second = {
  feedback_key: 'reason',
  is_required: false,
  is_assertion: true,
  regex_validator: '^[a-z]+$',
  required_if: { join: 'all' as const, rules: [rule, { key: 'kind', op: 'is_not_empty' as const }] },
  visible_if: { join: 'any' as const, rules: [{ key: 'kind', op: 'is' as const, values: [1] }] },
};
const noConfig = { feedback_config_id: null, feedback_config: null };

const ask = askAs(api, acme);
const create = async (rubric_items: unknown) => ask('POST', '/annotation-queues', { name: 'queue', rubric_items });

describe('rubric items', () => {
  it('keep every field on creation, read, update and in lists', async () => {
    const { status, body } = await create([first, second]);
    expect(status).toBe(200);
    const url = `/annotation-queues/${body.id}`;
    expect(body.rubric_items).toEqual([
      { ...first, ...noConfig },
      { ...second, ...noConfig },
    ]);
    expect((await ask('GET', url)).body).toEqual(body);
    const changed = await ask('PATCH', url, { rubric_items: [{ ...first, is_required: null }, second] });
    expect(changed.body.rubric_items).toMatchObject([{ ...first, is_required: null }, second]);
    expect((await ask('GET', url)).body.rubric_items).toEqual(changed.body.rubric_items);
    const listed = await ask('GET', `/annotation-queues?ids=${body.id}`);
    expect(listed.body[0].rubric_items).toEqual([{ ...first, is_required: null }, second]);
  });

  it('of the stock clients keep every field', async () => {
    const old = await client.createAnnotationQueue({ name: 'old', rubricItems: [first] });
    expect((await client.readAnnotationQueue(old.id)).rubric_items).toMatchObject([first]);
    const made = await newClient.createAnnotationQueue({ name: 'new', rubricItems: [first, second] });
    const read = await newClient.readAnnotationQueue(made.id);
    expect(read.rubric_items).toMatchObject([first, second]);
    const copy = await newClient.createAnnotationQueue({ name: 'copy', rubricItems: read.rubric_items ?? [] });
    expect((await newClient.readAnnotationQueue(copy.id)).rubric_items).toEqual(read.rubric_items);
  });

  it('have the config of their feedback key', async () => {
    const feedback_key = randomUUID();
    const config = { feedback_key, feedback_config: { type: 'continuous', min: 0, max: 1 } };
    const { body: stored } = await ask('POST', '/feedback-configs', config);
    const { body } = await create([{ feedback_key, feedback_config_id: stored.id, feedback_config: null }]);
    const item = { feedback_key, feedback_config_id: stored.id, feedback_config: stored };
    expect(body.rubric_items).toEqual([item]);
    const copy = await create(body.rubric_items);
    expect((await ask('GET', `/annotation-queues/${copy.body.id}`)).body.rubric_items).toEqual([item]);
  });

  it('keep their conditions and pattern in an update that omits them, and lose them by null', async () => {
    const { body } = await create([first, second]);
    const update = async (rubric_items: unknown) =>
      (await ask('PATCH', `/annotation-queues/${body.id}`, { rubric_items })).body;
    const bare = { feedback_key: 'reason', description: 'changed' };
    const { regex_validator, required_if, visible_if } = second;
    expect((await update([first, bare])).rubric_items).toEqual([
      { ...first, ...noConfig },
      { ...bare, regex_validator, required_if, visible_if, ...noConfig },
    ]);
    expect((await update([bare])).detail).toContain('required_if of reason names kind');
    const cleared = { regex_validator: null, required_if: null, visible_if: null };
    expect((await update([{ ...bare, ...cleared }])).rubric_items).toEqual([{ ...bare, ...cleared, ...noConfig }]);
    expect((await update(null)).rubric_items).toBeNull();
  });

  const conditional = (rules: unknown) => [first, { feedback_key: 'reason', visible_if: { join: 'all', rules } }];
  it.each<[string, unknown, number]>([
    ['a rule on itself', conditional([{ key: 'reason', op: 'is_empty' }]), 400],
    ['a rule on a later item', [...conditional([{ key: 'late', op: 'is_empty' }]), { feedback_key: 'late' }], 400],
    ['`is` with two values', conditional([{ key: 'kind', op: 'is', values: [1, 2] }]), 400],
    ['`is_one_of` without values', conditional([{ key: 'kind', op: 'is_one_of' }]), 400],
    ['`is_empty` with a value', conditional([{ key: 'kind', op: 'is_empty', values: [1] }]), 400],
    ['no rules', conditional([]), 422],
    ['an unknown operator', conditional([{ key: 'kind', op: 'like', values: [1] }]), 422],
    ['a long pattern', [{ feedback_key: 'a', regex_validator: 'x'.repeat(501) }], 422],
  ])('are refused with %s', async (_name, items, status) => {
    expect((await create(items)).status).toBe(status);
  });
});

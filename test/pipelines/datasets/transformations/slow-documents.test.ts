import { expect, it, onTestFinished, vi } from 'vitest';
import { runForTenant } from '../../../../infra/fairness/tenant-context.ts';
import { runInTimeSlices } from '../../../../infra/timeouts/time-slices.ts';
import type { DatasetTransformation } from '../../../../pipelines/datasets/transformations/dataset-transformation.ts';
import { createTransformer } from '../../../../pipelines/datasets/transformations/transform-documents.ts';
import { createExamplePreparer, type ExampleRules } from '../../../../pipelines/datasets/validate-examples.ts';
import { validateDocuments } from '../../../../pipelines/datasets/validation-thread.ts';
import { validateRequest } from '../../../../pipelines/datasets/validation-worker.ts';

/** Prepares an example, and returns its inputs and the time that it took. */
async function prepare(inputs: string, rules: Partial<ExampleRules>) {
  const began = performance.now();
  const all = { inputsSchema: null, outputsSchema: null, transformations: [], ...rules };
  const [prepared] = await createExamplePreparer(all, { maxRunBytes: 26_214_400 })([{ id: 'example', inputs }]);
  return { inputs: prepared?.inputs as string, ms: performance.now() - began };
}

const transformation = (
  transformation_type: DatasetTransformation['transformation_type'],
  ...path: string[]
): DatasetTransformation => ({ path, transformation_type });
const toMessages = [transformation('convert_to_openai_message', 'inputs', 'm')];

it('a long run of backslashes takes no quadratic time', { timeout: 120_000 }, async () => {
  const backslashes = JSON.stringify('\\'.repeat(60_000));
  const sent = `{"x":0.10,"m":[{"type":"system","content":""}],"y":${backslashes}}`;
  const { inputs, ms } = await prepare(sent, {
    transformations: [transformation('remove_system_messages', 'inputs', 'm')],
  });
  expect(inputs).toBe(`{"x":0.10,"m":[],"y":${backslashes}}`);
  expect(ms).toBeLessThan(2_000);
});

it('many tool calls take no quadratic time', { timeout: 120_000 }, async () => {
  const content = Array.from({ length: 80_000 }, (_, id) => ({ type: 'tool_use', id: `${id % 70_000}` }));
  const { inputs, ms } = await prepare(JSON.stringify({ m: [{ type: 'ai', content }] }), {
    transformations: toMessages,
  });
  expect(JSON.parse(inputs).m[0].tool_calls).toHaveLength(70_000);
  expect(ms).toBeLessThan(3_000);
});

it('many tool results in one content are converted', async () => {
  const results = Array.from({ length: 200_000 }, () => ({ type: 'tool_result', tool_use_id: 'a', content: '' }));
  const content = [{ type: 'tool_result', tool_use_id: 'b', content: results }];
  const { inputs } = await prepare(JSON.stringify({ m: [{ type: 'human', content }] }), {
    transformations: toMessages,
  });
  expect(JSON.parse(inputs).m).toHaveLength(200_000);
});

it.each(['same', 'different'])(
  'schemas that apply together to values with the %s paths',
  {
    timeout: 120_000,
  },
  async (paths) => {
    const anyOf = Array.from({ length: 6_000 }, () => ({}));
    const r = { anyOf, properties: { a: { $ref: '#/$defs/r' }, b: { $ref: '#/$defs/r' } } };
    const names = (index: number) =>
      Array.from({ length: 19 }, (_, at) => (paths === 'same' || index & (1 << (at % 7)) ? 'a' : 'b'));
    const transformations = Array.from({ length: 100 }, (_, index) =>
      transformation('remove_extra_fields', 'inputs', ...names(index)),
    );
    const schemas = { inputs: { $ref: '#/$defs/r', $defs: { r } }, outputs: undefined };
    const began = performance.now();
    const transform = await runInTimeSlices(createTransformer(transformations, schemas));
    expect(performance.now() - began).toBeLessThan(2_000);
    const inputs = (last: object) =>
      JSON.stringify(names(0).reduceRight<object>((value, name) => ({ [name]: value }), last));
    expect(transform({ inputs: inputs({ a: 1, c: 2 }) })).toEqual({ inputs: inputs({ a: 1 }) });
  },
);

it('unknown forms of content stay unchanged', async () => {
  const source = { type: 'base64', media_type: { toString: 1 }, data: 'AA==' };
  const m = [{ type: 'human', content: [[{ toString: 1 }], { type: 'image', source }, 'text', 1.5, null] }];
  const { inputs } = await prepare(JSON.stringify({ m }), { transformations: toMessages });
  const text = (value: string) => ({ type: 'text', text: value });
  expect(JSON.parse(inputs).m).toEqual([
    { role: 'user', content: [[{ toString: 1 }], { type: 'image', source }, text('text'), text('1.5'), text('null')] },
  ]);
});

it('numbers keep their digits within texts', async () => {
  const m = '[{"type":"human","content":["a",0.10,"b"]},{"type":"ai","content":[{"type":"tool_use","id":"c","name":"n"';
  const { inputs } = await prepare(`{"m":${m},"input":{"x":0.10,"y":"\\\\\\""}}]}]}`, { transformations: toMessages });
  expect(inputs).not.toContain('number-');
  const [first, second] = JSON.parse(inputs).m;
  expect(first.content).toBe('a\n0.10\nb');
  expect(second.tool_calls[0].function.arguments).toBe('{"x":0.10,"y":"\\\\\\""}');
});

it('pauses of the process do not count as time that a schema takes', () => {
  // On this clock the process pauses for 100 ms at every fiftieth call, so never during two validations of one value.
  let nowMs = performance.now();
  let calls = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += ++calls % 50 === 0 ? 100 : 0.01));
  onTestFinished(() => clock.mockRestore());
  const documents = Array.from({ length: 2_500 }, () => ({ inputs: '{"a":1}' }));
  const schemas = { inputs: '{"type":"object"}', outputs: null };
  let [start, slowMs, turns] = [0, 0, 0];
  for (; start < documents.length; turns++) {
    const { validated, ...result } = validateRequest({ schemas, documents: documents.slice(start), slowMs });
    expect(result).toEqual({ slowMs: 0 });
    start += validated;
    slowMs = result.slowMs;
  }
  expect([start, turns > 10]).toEqual([documents.length, true]);
});

it('slow documents of one organisation do not delay those of another', { timeout: 60_000 }, async () => {
  const pattern = JSON.stringify({ properties: { a: { pattern: '^(a+)+$' } } });
  const slow = [{ inputs: JSON.stringify({ a: `${'a'.repeat(50)}b` }) }];
  const ends: string[] = [];
  const validate = async (organizationId: string, documents: readonly { inputs: string }[]) => {
    const request = { schemas: { inputs: pattern, outputs: null }, documents, slowMs: 0 };
    const result = await runForTenant({ organizationId }, () => validateDocuments(request));
    ends.push(organizationId);
    return result;
  };
  const slows = Array.from({ length: 4 }, () => validate('slow', slow));
  const quick = Array.from({ length: 1_000 }, () => ({ inputs: '{"a":"aa"}' }));
  expect(await validate('quick', quick)).toEqual({ slowMs: 0 });
  expect(ends.filter((each) => each === 'slow').length).toBeLessThan(slows.length);
  for (const { documentError } of await Promise.all(slows))
    expect(documentError).toEqual({ index: 0, reason: expect.stringContaining('takes longer than') });
});

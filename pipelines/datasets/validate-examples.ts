import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { parseNullableJson } from '../../infra/json/json-value.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { runInTimeSlices } from '../../infra/timeouts/time-slices.ts';
import { validateAttachmentName } from '../attachments/read-attachment.ts';
import { createExampleError } from './example.ts';
import { type ExampleWithSource, readSourceRuns } from './source-runs.ts';
import type { DatasetTransformation } from './transformations/dataset-transformation.ts';
import { createTransformer, type ExampleDocuments, type Transformer } from './transformations/transform-documents.ts';
import { validateDocuments } from './validation-thread.ts';

interface CheckedExample extends ExampleDocuments {
  readonly id: string;
  readonly metadata?: object | null | undefined;
  readonly attachments?: readonly { readonly name: string; readonly content: Buffer }[] | undefined;
}

interface DatasetIds {
  readonly workspaceId: string;
  readonly datasetId: string;
}

/** What a dataset demands of its examples. */
export interface ExampleRules {
  /** JSON Schemas as text. */
  readonly inputsSchema: string | null;
  readonly outputsSchema: string | null;
  readonly transformations: readonly DatasetTransformation[];
}

/** @throws NOT_FOUND for an unknown dataset. */
export async function readExampleRules(database: Sql, { workspaceId, datasetId }: DatasetIds): Promise<ExampleRules> {
  const [dataset] = await database.query<Record<'inputs' | 'outputs' | 'transformations', string | null>>(
    `SELECT inputs_schema_definition AS inputs, outputs_schema_definition AS outputs, transformations FROM datasets
     WHERE id = $1 AND workspace_id = $2`,
    [datasetId, workspaceId],
  );
  if (!dataset) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
  return {
    inputsSchema: dataset.inputs,
    outputsSchema: dataset.outputs,
    transformations: parseNullableJson<readonly DatasetTransformation[]>(dataset.transformations) ?? [],
  };
}

/** Tools of the source runs of examples, by the id of the example. */
export type RunTools = ReadonlyMap<string, unknown>;

/**
 * Returns a function that transforms examples as the dataset demands, and then checks their size and that their inputs and
 * outputs match the schemas of the dataset. Absent inputs and outputs always match. The function returns the transformed
 * examples. It throws INVALID_EXAMPLE with the example and the path, and EXAMPLE_TOO_LARGE.
 */
export function createExamplePreparer(
  { inputsSchema, outputsSchema, transformations }: ExampleRules,
  { maxRunBytes: maxBytes }: Pick<Config, 'maxRunBytes'>,
): <Example extends CheckedExample>(examples: readonly Example[], tools?: RunTools) => Promise<Example[]> {
  const schemas = { inputs: inputsSchema, outputs: outputsSchema };
  let slowMs = 0;
  let transformer: Transformer | undefined;
  const transform = function* <Example extends CheckedExample>(
    examples: readonly Example[],
    tools: RunTools | undefined,
  ) {
    transformer ??= yield* createTransformer(transformations, {
      inputs: parseNullableJson(inputsSchema) ?? undefined,
      outputs: parseNullableJson(outputsSchema) ?? undefined,
    });
    const transformed: Example[] = [];
    for (const sent of examples) {
      checkSizes(sent, maxBytes);
      const example = transformer(sent, tools?.get(sent.id));
      if (example !== sent) checkSizes(example, maxBytes);
      transformed.push(example);
      yield;
    }
    return transformed;
  };
  return async (examples, tools) => {
    const transformed = await runInTimeSlices(transform(examples, tools));
    if (inputsSchema === null && outputsSchema === null) return transformed;
    const documents = transformed.map(({ inputs, outputs }) => ({ inputs, outputs }));
    const { documentError, ...validated } = await validateDocuments({ schemas, documents, slowMs });
    slowMs = validated.slowMs;
    if (documentError) throw createExampleError(transformed[documentError.index]!.id, documentError.reason);
    return transformed;
  };
}

function checkSizes({ id, inputs, outputs, metadata, attachments = [] }: CheckedExample, maxBytes: number): void {
  const texts = [inputs ?? '', outputs ?? '', metadata ? formatMarkedJson(metadata) : ''];
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  if (Math.max(bytes, ...attachments.map(({ content }) => content.length)) > maxBytes) {
    throw runlakeError('EXAMPLE_TOO_LARGE', { example: id, limitBytes: maxBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  for (const { name } of attachments) {
    const reason = validateAttachmentName(name);
    if (reason !== undefined)
      throw createExampleError(id, `attachment ${JSON.stringify(name.slice(0, 64))}: ${reason}`);
  }
}

/**
 * Replaces inputs and outputs with those of the source run in examples that copy them, then transforms and validates all
 * of them as the dataset requires.
 *
 * @throws NOT_FOUND; INVALID_EXAMPLE; EXAMPLE_TOO_LARGE; BAD_REQUEST if the source runs are too large; TOO_DEEP if they are
 *   nested too deep; errors of the stores.
 */
export async function prepareExamples<E extends CheckedExample & ExampleWithSource>(
  deps: Parameters<typeof readSourceRuns>[0] & { readonly database: Sql; readonly config: Pick<Config, 'maxRunBytes'> },
  scope: DatasetIds,
  sent: readonly E[],
): Promise<E[]> {
  const rules = await readExampleRules(deps.database, scope);
  const runs = await readSourceRuns(deps, scope.workspaceId, sent, {
    withTools: rules.transformations.some((each) => each.transformation_type === 'convert_to_openai_tool'),
  });
  const findRun = ({ useSourceRunIo, sourceRunId }: E) =>
    useSourceRunIo && sourceRunId ? runs.get(sourceRunId) : undefined;
  const tools = new Map(sent.map((example) => [example.id, findRun(example)?.tools]));
  const complete = sent.map((example) => {
    const run = findRun(example);
    return run === undefined ? example : { ...example, inputs: run.inputs, outputs: run.outputs };
  });
  return createExamplePreparer(rules, deps.config)(complete, tools);
}

/** @throws INVALID_EXAMPLE */
export function requireInputs<E extends CheckedExample>(example: E): E & { readonly inputs: string } {
  const { inputs } = example;
  if (inputs === undefined) throw createExampleError(example.id, 'it has no inputs');
  return { ...example, inputs };
}

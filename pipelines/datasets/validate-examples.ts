import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { validateAttachmentName } from '../attachments/read-attachment.ts';
import { runInTimeSlices, type StepwiseWork } from '../ingest/in-slices.ts';
import { createExampleError } from './example.ts';
import { compileExampleSchema, type ExampleSchemaValidator } from './example-schema.ts';

interface ValidatedExample {
  readonly id: string;
  readonly inputs?: string | undefined;
  readonly outputs?: string | null | undefined;
  readonly metadata?: object | null | undefined;
  readonly attachments?: readonly { readonly name: string; readonly content: Buffer }[] | undefined;
}

interface ValidationDeps {
  readonly database: Sql;
  readonly config: Pick<Config, 'maxRunBytes'>;
}

interface DatasetIds {
  readonly workspaceId: string;
  readonly datasetId: string;
}

/**
 * Checks the size of examples, and checks that their inputs and outputs match the schemas of the dataset. Absent inputs
 * and outputs always match.
 *
 * @throws NOT_FOUND for an unknown dataset; INVALID_EXAMPLE with the example and the path; EXAMPLE_TOO_LARGE.
 */
export async function validateExamples(
  deps: ValidationDeps,
  dataset: DatasetIds,
  examples: readonly ValidatedExample[],
): Promise<void> {
  const validate = await createExampleValidator(deps, dataset);
  await validate(examples);
}

/** Time of each value that does not count for the request. Values of typical schemas take less than a millisecond. */
const freeMs = 10;
/** Maximum time beyond {@link freeMs} of all values of a request: many slow values would block the process for long. */
const maxSlowMs = 1_000;

/**
 * Reads the schemas of the dataset once, and returns a function that validates examples in the same way as {@link
 * validateExamples}.
 */
export async function createExampleValidator(
  { database, config }: ValidationDeps,
  { workspaceId, datasetId }: DatasetIds,
): Promise<(examples: readonly ValidatedExample[]) => Promise<void>> {
  const [dataset] = await database.query<{ inputs: string | null; outputs: string | null }>(
    `SELECT inputs_schema_definition AS inputs, outputs_schema_definition AS outputs FROM datasets
     WHERE id = $1 AND workspace_id = $2`,
    [datasetId, workspaceId],
  );
  if (!dataset) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
  const compile = (field: string, text: string | null) =>
    text === null ? undefined : compileExampleSchema(field, text);
  const schemas = {
    inputs: compile('inputs_schema_definition', dataset.inputs),
    outputs: compile('outputs_schema_definition', dataset.outputs),
  };
  const validate = limitTime();
  return (examples) => runInTimeSlices(checkAll(examples, { schemas, validate, maxBytes: config.maxRunBytes }));
}

/** Returns a function that validates values, and refuses them once they have taken too long together. */
function limitTime(): (schema: ExampleSchemaValidator, value: unknown) => string | undefined {
  let slowMs = 0;
  return (schema, value) => {
    const began = performance.now();
    const error = schema(value);
    slowMs += Math.max(0, performance.now() - began - freeMs);
    if (error !== undefined || slowMs <= maxSlowMs) return error;
    return ` cannot be validated: the values of the request take ${maxSlowMs} ms longer than ${freeMs} ms each`;
  };
}

function* checkAll(
  examples: readonly ValidatedExample[],
  {
    schemas,
    validate,
    maxBytes,
  }: {
    readonly schemas: Readonly<Record<'inputs' | 'outputs', ExampleSchemaValidator | undefined>>;
    readonly validate: ReturnType<typeof limitTime>;
    readonly maxBytes: number;
  },
): StepwiseWork<void> {
  for (const example of examples) {
    checkSizes(example, maxBytes);
    for (const field of ['inputs', 'outputs'] as const) {
      const [text, schema] = [example[field], schemas[field]];
      if (text == null || schema === undefined) continue;
      const error = validate(schema, JSON.parse(text));
      if (error !== undefined) throw createExampleError(example.id, `${field}${error}`);
    }
    yield;
  }
}

function checkSizes({ id, inputs, outputs, metadata, attachments = [] }: ValidatedExample, maxBytes: number): void {
  const texts = [inputs ?? '', outputs ?? '', metadata ? JSON.stringify(metadata) : ''];
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

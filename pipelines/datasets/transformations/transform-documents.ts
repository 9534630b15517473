import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';
import { formatMarkedJson, parseMarkedJson } from '../../../infra/json/marked-json.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { readMessage } from '../../runs/openai-messages.ts';
import { type DatasetTransformation, transformationTypes } from './dataset-transformation.ts';
import { convertMessages, convertTool } from './openai-forms.ts';
import { createSchemaFinder, isListSchema, isRequired, listFields, type SchemaFinder } from './schema-fields.ts';

type DocumentName = 'inputs' | 'outputs';

/** Inputs and outputs of an example as JSON text. */
export interface ExampleDocuments {
  readonly inputs?: string | undefined;
  readonly outputs?: string | null | undefined;
}

/** JSON Schemas of the inputs and outputs of a dataset. */
type DatasetSchemas = Readonly<Record<DocumentName, JsonObject | undefined>>;

/** A change of a document. It returns the same value if it changes nothing. `runTools` are the tools of the source run. */
type Change = (document: unknown, runTools: unknown) => unknown;

export type Transformer = <Example extends ExampleDocuments>(example: Example, runTools?: unknown) => Example;

/**
 * Returns a function that applies the transformations of a dataset to the documents of an example. Values that have not
 * the form that a transformation expects stay unchanged, and so does the text of a document in which nothing changes.
 */
export function* createTransformer(
  transformations: readonly DatasetTransformation[],
  schemas: DatasetSchemas,
): StepwiseWork<Transformer> {
  const order = (each: DatasetTransformation) => transformationTypes.indexOf(each.transformation_type);
  const sorted = [...transformations].sort((one, other) => order(one) - order(other));
  const finders = {
    inputs: createSchemaFinder(schemas.inputs ?? {}),
    outputs: createSchemaFinder(schemas.outputs ?? {}),
  };
  const changes: Record<DocumentName, Change[]> = { inputs: [], outputs: [] };
  for (const each of sorted) {
    const name = each.path[0] as DocumentName;
    changes[name].push(yield* toChange(each, finders[name]));
  }
  const transform = (text: string | null | undefined, name: DocumentName, runTools: unknown) => {
    if (text == null || changes[name].length === 0) return {};
    const document = parseMarkedJson(text, Number.POSITIVE_INFINITY);
    const changed = changes[name].reduce((value, change) => change(value, runTools), document);
    return changed === document ? {} : { [name]: formatMarkedJson(changed) };
  };
  if (transformations.length === 0) return (example) => example;
  return (example, runTools) => ({
    ...example,
    ...transform(example.inputs, 'inputs', runTools),
    ...transform(example.outputs, 'outputs', undefined),
  });
}

function* toChange(
  { path: [name, ...members], transformation_type: type }: DatasetTransformation,
  findSchemas: SchemaFinder,
): StepwiseWork<Change> {
  const key = members[0] ?? '';
  const schemas = yield* findSchemas(members);
  switch (type) {
    case 'convert_to_openai_message': {
      // Traced messages are known only in whole documents.
      const isExtracted = members.length === 1 && isRequired(yield* findSchemas([]), key);
      const read = name === 'inputs' ? readTracedPrompt : readTracedAnswer;
      return (document) => {
        const complete = isExtracted
          ? extractMessages(document, { key, read, isList: isListSchema(schemas) })
          : document;
        return changeAt(complete, members, convertMessages);
      };
    }
    case 'convert_to_openai_tool':
      return (document, runTools) => changeAt(addTools(document, key, runTools), members, convertTools);
    case 'remove_system_messages':
      return (document) => changeAt(document, members, removeSystemMessages);
    case 'remove_extra_fields': {
      const fields = listFields(schemas);
      return (document) =>
        fields ? changeAt(document, members, (value) => removeExtraFields(value, fields)) : document;
    }
  }
}

/** Changes the value at a path; does nothing if there is none. */
function changeAt(value: unknown, [name, ...rest]: readonly string[], change: (value: unknown) => unknown): unknown {
  if (name === undefined) return change(value);
  if (!isJsonObject(value) || !Object.hasOwn(value, name)) return value;
  const changed = changeAt(value[name], rest, change);
  return changed === value[name] ? value : { ...value, [name]: changed };
}

const isAbsent = (value: unknown) => value == null || (Array.isArray(value) && value.length === 0);

function addTools(document: unknown, key: string, runTools: unknown): unknown {
  if (!isJsonObject(document) || !isAbsent(getMember(document, key)) || isAbsent(runTools)) return document;
  return { ...document, [key]: runTools };
}

const getMember = (object: JsonObject, name: string) => (Object.hasOwn(object, name) ? object[name] : undefined);

function convertTools(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const converted = value.map(convertTool);
  return converted.every((tool, index) => tool === value[index]) ? value : converted;
}

function removeSystemMessages(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const kept = value.filter((message) => readMessage(message)?.role !== 'system');
  return kept.length === value.length ? value : kept;
}

function removeExtraFields(value: unknown, fields: ReadonlySet<string>): unknown {
  if (!isJsonObject(value) || Object.keys(value).every((name) => fields.has(name))) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => fields.has(name)));
}

interface Traced {
  /** Member of the document that contains the messages. */
  readonly from: string;
  readonly messages: readonly unknown[];
}

/** The inputs of chat models that LangChain traces, and of those that the wrappers of OpenAI clients trace. */
function readTracedPrompt({ messages: sent }: JsonObject): Traced | undefined {
  const messages: unknown = Array.isArray(sent) && sent.length === 1 && Array.isArray(sent[0]) ? sent[0] : sent;
  return Array.isArray(messages) ? { from: 'messages', messages } : undefined;
}

/** The outputs of chat models that LangChain traces, and of those that the wrappers of OpenAI clients trace. */
function readTracedAnswer({ generations, choices }: JsonObject): Traced | undefined {
  const forms = { generations: Array.isArray(generations) ? generations.flat() : [], choices };
  for (const [from, list] of Object.entries(forms)) {
    const first: unknown = Array.isArray(list) ? list[0] : undefined;
    if (isJsonObject(first) && isJsonObject(first.message)) return { from, messages: [first.message] };
  }
  return undefined;
}

/** Moves the messages of a traced run to the member `key`, unless that has a value. */
function extractMessages(
  document: unknown,
  {
    key,
    read,
    isList,
  }: {
    readonly key: string;
    readonly read: (document: JsonObject) => Traced | undefined;
    readonly isList: boolean;
  },
): unknown {
  if (!isJsonObject(document) || getMember(document, key) != null) return document;
  const traced = read(document);
  if (traced === undefined || (!isList && traced.messages.length !== 1)) return document;
  const { [traced.from]: _, ...more } = document;
  return { ...more, [key]: isList ? traced.messages : traced.messages[0] };
}

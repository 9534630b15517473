import { type ModelKey, modelKeys, type NamedModel, type PriceMap } from '../../costs/price-map.ts';
import { findPath } from '../json/find.ts';
import type { JsonRange } from '../json/scan.ts';
import { parseRange } from '../json/scan-string.ts';
import type { RunValues } from '../run-event/run-event.ts';

interface NameSource {
  readonly member: 'extra' | 'inputs';
  readonly path: readonly string[];
  readonly key: ModelKey | undefined;
  /** Text that occurs in all JSON that contains the path. Most events contain none of these texts. */
  readonly quotedKey: Buffer;
}

const quoteKey = (key: string) => Buffer.from(`"${key}"`);

/**
 * The fields in which an event can name its model, in order of precedence. The index of a field is stored with the run
 * and must not change, so new fields are added at the end. Source: the public run format.
 */
const nameSources: readonly NameSource[] = [
  { member: 'extra', path: ['metadata', 'ls_model_name'], key: undefined, quotedKey: quoteKey('ls_model_name') },
  { member: 'inputs', path: ['model'], key: 'model', quotedKey: quoteKey('model') },
  { member: 'inputs', path: ['model_name'], key: 'model_name', quotedKey: quoteKey('model_name') },
  ...modelKeys.map((key) => ({
    member: 'extra' as const,
    path: ['invocation_params', key],
    key,
    quotedKey: quoteKey('invocation_params'),
  })),
];
const strongestSourceNumber = 100;
/**
 * Indicates that the client sent costs. In this case no costs are computed, even if other events of the run name a
 * model.
 */
const statedCostsSource = 255;

/** Maximum size of the name of a model or provider as JSON text, in bytes. Longer names are ignored. */
const maxNameBytes = 258;

/** Whether an event may belong to a model call, which has a price. A patch can omit the run type. */
export function mayHavePrice({ runType }: RunValues): boolean {
  return runType === undefined || runType === 'llm' || runType === 'embedding';
}

/**
 * Adds the price of the model that the event names to `values`. If the event states costs, adds a marker for this
 * instead. All other events stay unchanged.
 *
 * The price depends only on the event and on the price map, never on other events, so that the events of a run can be
 * merged in any order: costs are computed from the merged tokens and prices when a run is read
 * (`schemas/clickhouse/0001_runs.sql`).
 */
export function priceRun(values: RunValues, startTimeMicros: number, prices: PriceMap): void {
  if (hasStatedCosts(values)) {
    values.price = { source: statedCostsSource };
    return;
  }
  const known: KnownMembers = new Map();
  for (let index = 0; index < nameSources.length; index++) {
    const source = nameSources[index] as NameSource;
    const name = findText(values, source, known);
    if (name === undefined) continue;
    const model: NamedModel = { name, key: source.key, provider: findText(values, providerSource, known) };
    values.price = { source: strongestSourceNumber - index, tokens: prices.find(model, startTimeMicros) };
    return;
  }
}

const providerSource: NameSource = {
  member: 'extra',
  path: ['metadata', 'ls_provider'],
  key: undefined,
  quotedKey: quoteKey('ls_provider'),
};

function hasStatedCosts({ promptCost, completionCost, totalCost, usageDetails }: RunValues): boolean {
  if ((promptCost ?? completionCost ?? totalCost) !== undefined) return true;
  const details = usageDetails as Buffer | undefined;
  return (
    details !== undefined &&
    // Some clients send details without a cost.
    (details.includes('"prompt_cost_details":{"') || details.includes('"completion_cost_details":{"'))
  );
}

/** Members that were searched, by the field that contains them and their name. The fields may be as large as a run. */
type KnownMembers = Map<string, JsonRange | undefined>;

function findText(values: RunValues, { member, path, quotedKey }: NameSource, known: KnownMembers): string | undefined {
  const json = values[member] as Buffer | undefined;
  if (json === undefined || !json.includes(quotedKey)) return undefined;
  const [first = '', ...rest] = path;
  const name = `${member}.${first}`;
  const parent = known.has(name) ? known.get(name) : findPath(json, 0, json.length, [first]);
  known.set(name, parent);
  const range = parent && findPath(json, parent.start, parent.end, rest);
  if (range === undefined || range.end - range.start > maxNameBytes) return undefined;
  const text = parseRange(json, range.start, range.end);
  return typeof text === 'string' && text !== '' ? text : undefined;
}

import { scoreSql } from '../../feedback/feedback-stats.ts';
import { toPlainText } from '../json-sql.ts';
import { getField, type PairFamily } from './fields.ts';
import { buildComparisonSql, definePairs, type FilterContext, type RunComparison } from './sql-terms.ts';
import { ExactNumber, isNumeric, type Operand } from './syntax.ts';

/** Writes the SQL of one comparison on a pair. `neq` is written as `eq`, and the caller negates the result. */
type WritePair = (comparison: RunComparison) => string;

/**
 * Writes the comparisons of one family within an `and`:
 *   - `neq` on the key means that the run has no pair with this key;
 *   - all other comparisons apply to the same pair, if at least one of them is positive;
 *   - otherwise, each `neq` means that the run has no pair with this value.
 */
export function writePairGroup(family: PairFamily, group: readonly RunComparison[], context: FilterContext): string {
  const { exists, writePair } =
    family === 'feedback' ? createFeedbackPairSource(context) : createDocumentPairSource(family, context);
  const isAbsentKey = ({ operator, field }: RunComparison) => operator === 'neq' && getField(field).isKey === true;
  const absentKeys = group.filter(isAbsentKey);
  const others = group.filter((comparison) => !isAbsentKey(comparison));
  const onePair = others.some(({ operator }) => operator !== 'neq');
  const pairConditions = others.map((each) =>
    each.operator === 'neq' && onePair ? `NOT ${writePair(each)}` : writePair(each),
  );
  return [
    ...(onePair
      ? [exists(pairConditions.join(' AND '))]
      : pairConditions.map((condition) => `NOT ${exists(condition)}`)),
    ...absentKeys.map((comparison) => `NOT ${exists(writePair(comparison))}`),
  ].join(' AND ');
}

interface PairSource {
  /** Builds an SQL condition: the run has a pair that satisfies `condition`. */
  readonly exists: (condition: string) => string;
  readonly writePair: WritePair;
}

const columns = { metadata: 'metadata', input: 'inputs', output: 'outputs' } as const;

function createDocumentPairSource(family: Exclude<PairFamily, 'feedback'>, context: FilterContext): PairSource {
  return {
    exists: (condition) => `arrayExists(pair -> ${condition}, ${definePairs(columns[family], context)})`,
    writePair: (comparison) =>
      getField(comparison.field).isKey
        ? writeText('pair.1', comparison, context)
        : writeValue('pair.2', comparison, context),
  };
}

const feedbackValueSql = `if(isNull(value), NULL, ${toPlainText(`ifNull(value, '')`)})`;

function createFeedbackPairSource(context: FilterContext): PairSource {
  return {
    exists: (condition) =>
      `id IN (SELECT run_id FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND ${context.liveCondition} AND ${condition})`,
    writePair: (comparison) => {
      switch (comparison.field) {
        case 'feedback_key':
          return writeText('key', comparison, context);
        case 'feedback_source':
          return writeText('source_type', comparison, context);
        case 'feedback_score':
          return buildComparisonSql(scoreSql, removeNegation(comparison), comparison.value, 'Float64', context);
        default:
          return writeValue(feedbackValueSql, comparison, context);
      }
    },
  };
}

const removeNegation = ({ operator }: RunComparison) => (operator === 'neq' ? 'eq' : operator);

function writeText(left: string, comparison: RunComparison, context: FilterContext): string {
  return buildComparisonSql(left, removeNegation(comparison), comparison.value, 'String', context);
}

/** Integers that fit into Int256. */
const integerPattern = '^-?[0-9]{1,76}$';
const numberPattern = '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$';

/**
 * Writes the comparison of a value. A value is compared with a string or a boolean as text, and with a number as a
 * number if its text is a number. Whether the value was sent as a string or as a number makes no difference, because
 * metadata often comes from environment variables. Large integers are compared by all their digits.
 */
function writeValue(text: string, comparison: RunComparison, context: FilterContext): string {
  const operator = removeNegation(comparison);
  const number = `if(match(ifNull(${text}, ''), '${numberPattern}'), toFloat64OrNull(${text}), NULL)`;
  const integer = `if(match(ifNull(${text}, ''), '${integerPattern}'), toInt256OrNull(${text}), NULL)`;
  const compareWith = (left: string, type: string, list: readonly Operand[]) =>
    buildComparisonSql(left, operator, Array.isArray(comparison.value) ? list : list[0]!, type, context);
  const compareIntegers = (list: readonly ExactNumber[]) => {
    const asFloats = compareWith(number, 'Float64', list.map(Number));
    return `if(isNull(${integer}), ${asFloats}, ${compareWith(integer, 'Int256', list)})`;
  };
  const values = [comparison.value].flat();
  const integers = values.filter(isExactInteger);
  const numbers = values.filter((item) => isNumeric(item) && !isExactInteger(item)).map(Number);
  const texts = values.filter((item) => !isNumeric(item)).map(String);
  const lists = [
    ...(integers.length > 0 ? [compareIntegers(integers)] : []),
    ...(numbers.length > 0 ? [compareWith(number, 'Float64', numbers)] : []),
    ...(texts.length > 0 ? [compareWith(text, 'String', texts)] : []),
  ];
  return `(${lists.join(' OR ')})`;
}

const isExactInteger = (value: Operand): value is ExactNumber =>
  value instanceof ExactNumber && !value.digits.includes('.');

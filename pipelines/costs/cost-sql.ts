/**
 * SQL over `runs` for the costs of a model call, computed from its tokens and the price that ingest stored
 * (`docs/decisions/0141-costs.md`). These are not ALIAS columns of the table, because ClickHouse analyses the expression of
 * every ALIAS column of a table for each query that reads the table.
 */

/** Position in `ranked_price` of the price of a token, and of the prices of kinds of tokens. */
const pricePositions = { prompt: [4, 6], completion: [5, 7] } as const;
type Part = keyof typeof pricePositions;

const buildStatedText = (column: string) => `if(empty(${column}), NULL, substring(${column}, 9))`;

/** Kinds of tokens with a price of their own, as tuples of name, number of tokens and price. */
const buildKinds = (part: Part) =>
  `arrayMap(price -> (price.1, JSONExtractUInt(substring(ranked_usage_details, 9), '${part}_token_details', price.1), price.2),
    ranked_price.${pricePositions[part][1]})`;

/** Cost as a decimal: each kind of tokens at its own price, the others at the price of the part. Null without tokens. */
const buildCostByPrice = (part: Part) =>
  `if(isNull(${part}_tokens), NULL, arrayMap(kinds -> ranked_price.${pricePositions[part][0]} * greatest(0, ${part}_tokens - arraySum(kinds.2))
    + arraySum(kind -> kind.2 * kind.3, kinds), [${buildKinds(part)}])[1])`;

const promptCost = buildCostByPrice('prompt');
const completionCost = buildCostByPrice('completion');

/** Member of the details, with a comma before it; empty if no kind of tokens has a price of its own. */
const buildCostDetails = (part: Part) =>
  `replaceOne(concat(',"${part}_cost_details":{', arrayStringConcat(arrayMap(
    kind -> concat('"', kind.1, '":"', toString(kind.2 * kind.3), '"'), arrayFilter(kind -> kind.2 > 0, ${buildKinds(part)})), ','), '}'),
    ',"${part}_cost_details":{}', '')`;

/**
 * The computed columns of a model call. Costs are decimals in text form: the one that an event states, otherwise the one
 * of the tokens; null if there is neither. `usage_details` is a JSON object.
 */
export const costSql = {
  prompt_cost: `coalesce(${buildStatedText('ranked_prompt_cost')}, toString(${promptCost}))`,
  completion_cost: `coalesce(${buildStatedText('ranked_completion_cost')}, toString(${completionCost}))`,
  total_cost: `coalesce(${buildStatedText('ranked_total_cost')}, toString(arrayReduce('sum', [${promptCost}, ${completionCost}])))`,
  usage_details: `multiIf(empty(ranked_usage_details), NULL,
    empty(ranked_price.6) AND empty(ranked_price.7), substring(ranked_usage_details, 9),
    concat(substring(ranked_usage_details, 9, length(ranked_usage_details) - 9),
      ${buildCostDetails('prompt')}, ${buildCostDetails('completion')}, '}'))`,
} as const;

/**
 * Writes an item of a SELECT of `runs` that has the name of the column. Expressions that use a column several times read it
 * from such a subquery, because ClickHouse plans the expression of the column wherever it stands.
 */
export const selectColumn = (name: string): string =>
  Object.hasOwn(costSql, name) ? `${costSql[name as keyof typeof costSql]} AS ${name}` : name;

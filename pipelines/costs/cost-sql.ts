/**
 * SQL over `runs` for the costs of a model call, computed from its tokens and the price that ingest stored
 * (`docs/decisions/0141-costs.md`). These are not ALIAS columns of the table, because ClickHouse analyses the expression of
 * every ALIAS column of a table for each query that reads the table.
 */

/**
 * Expressions for the WITH clause of a query on `runs` that reads {@link costSql}. Each is a list of two items, one for the
 * prompt and one for the completion.
 */
export const costExpressions = [
  // Kinds of tokens with a price of their own, as tuples of name, number of tokens and price.
  `arrayMap((details, prices) -> arrayMap(price ->
    (price.1, JSONExtractUInt(substring(ranked_usage_details, 9), details, price.1), price.2), prices),
    ['prompt_token_details', 'completion_token_details'], [ranked_price.6, ranked_price.7]) AS priced_kinds`,
  // Decimals: each kind of tokens at its own price, the others at the price of the part. Null without tokens.
  `arrayMap((kinds, price, tokens) -> if(isNull(tokens), NULL,
    price * greatest(0, tokens - arraySum(kinds.2)) + arraySum(kind -> kind.2 * kind.3, kinds)),
    priced_kinds, [ranked_price.4, ranked_price.5], [prompt_tokens, completion_tokens]) AS token_costs`,
].join(', ');

const chooseCost = (stated: string, computed: string) =>
  `coalesce(if(empty(${stated}), NULL, substring(${stated}, 9)), toString(${computed}))`;

/** Members of the details, each with a comma before it; only of parts with kinds of tokens that have their own price. */
const costDetails = `arrayStringConcat(arrayMap((name, kinds) -> if(empty(kinds), '', concat(',"', name, '":{',
    arrayStringConcat(arrayMap(kind -> concat('"', kind.1, '":"', toString(kind.2 * kind.3), '"'), kinds), ','), '}')),
  ['prompt_cost_details', 'completion_cost_details'], arrayMap(kinds -> arrayFilter(kind -> kind.2 > 0, kinds), priced_kinds)))`;

/**
 * The computed columns of a model call, for a query with {@link costExpressions}. Costs are decimals in text form: the one
 * that an event states, otherwise the one of the tokens; null if there is neither. `usage_details` is a JSON object.
 */
export const costSql = {
  prompt_cost: chooseCost('ranked_prompt_cost', 'token_costs[1]'),
  completion_cost: chooseCost('ranked_completion_cost', 'token_costs[2]'),
  total_cost: chooseCost('ranked_total_cost', `arrayReduce('sum', token_costs)`),
  usage_details: `if(empty(ranked_usage_details), NULL, if(empty(ranked_price.6) AND empty(ranked_price.7), substring(ranked_usage_details, 9),
    concat(substring(ranked_usage_details, 9, length(ranked_usage_details) - 9), ${costDetails}, '}')))`,
} as const;

/**
 * Writes an item of a SELECT of `runs` that has the name of the column. Expressions that use a column several times read it
 * from such a subquery, because ClickHouse plans the expression of the column wherever it stands.
 */
export const selectColumn = (name: string): string =>
  Object.hasOwn(costSql, name) ? `${costSql[name as keyof typeof costSql]} AS ${name}` : name;

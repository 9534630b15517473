/**
 * Builds ClickHouse SQL that reads JSON text as it is stored. Every function takes the SQL of a column that is not
 * null.
 */

/**
 * Replaces escapes of lone surrogates by U+FFFD, because ClickHouse refuses them. First, double backslashes are
 * rewritten, so that each remaining backslash begins an escape; then pairs of surrogates are set aside with a character
 * that cannot occur in JSON text.
 */
function replaceLoneSurrogates(json: string): string {
  const single = `replaceAll(${json}, '\\\\\\\\', '\\\\u005c')`;
  const markedPairs = `replaceRegexpAll(${single}, '\\\\\\\\u([dD][89abAB][0-9a-fA-F]{2})\\\\\\\\u([dD][c-fC-F][0-9a-fA-F]{2})', '\\x01\\\\1\\x01\\\\2')`;
  const halves = `replaceRegexpAll(${markedPairs}, '\\\\\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}', '\\\\\\\\ufffd')`;
  return `replaceAll(${halves}, '\\x01', '\\\\u')`;
}

/** Builds SQL for the text of a JSON string with its escapes decoded. */
const decodeString = (json: string) =>
  `JSONExtractString(if(isValidJSON(${json}), ${json}, ${replaceLoneSurrogates(json)}))`;

/**
 * Builds SQL for JSON that ClickHouse can parse. Its parser refuses two kinds of valid JSON: escapes of lone
 * surrogates, and integers beyond 64 bits, which become fractions.
 */
export function toReadableJson(json: string): string {
  const fraction = (text: string) =>
    `replaceRegexpAll(${text}, '([:,\\\\[]\\\\s*-?[0-9]{19,})(\\\\s*[,}\\\\]])', '\\\\1.0\\\\2')`;
  // Applied twice, because the match of an item in a list includes the comma before the next item.
  return `if(isValidJSON(${json}), ${json}, ${fraction(fraction(replaceLoneSurrogates(json)))})`;
}

/** Builds SQL for the text of a JSON value: the decoded text of a string, and the JSON of any other value. */
export function toPlainText(json: string): string {
  return `if(startsWith(${json}, '"'), ${decodeString(json)}, ${json})`;
}

/**
 * Builds SQL for JSON with all its escapes decoded, for searches. The whole text is turned into one JSON string, which
 * ClickHouse decodes.
 */
export function toDecodedText(json: string): string {
  const single = `replaceAll(${json}, '\\\\\\\\', '\\\\u005c')`;
  const quotes = `replaceAll(replaceAll(${single}, '\\\\"', '\\\\u0022'), '"', '\\\\u0022')`;
  const spaces = `replaceAll(replaceAll(replaceAll(${quotes}, '\\n', '\\\\n'), '\\r', '\\\\r'), '\\t', '\\\\t')`;
  const string = `concat('"', ${spaces}, '"')`;
  return decodeString(string);
}

/** Maximum nesting depth of objects and lists at which keys are found. */
const maxKeyDepth = 32;

/**
 * Builds SQL for the keys and values of a JSON object that ClickHouse can parse, as `Array(Tuple(String,
 * Nullable(String)))`. The key of a nested value is the path to it, joined by dots; the items of a list have the key of
 * the list. A value is its plain text; objects and empty lists have none.
 *
 * Each step of the fold moves one level of values from the second list to the first, and expands it.
 */
export function toPairs(json: string): string {
  const isNested = `(startsWith(node.2, '{') OR startsWith(node.2, '['))`;
  const leaf = `if(startsWith(node.2, '"'), JSONExtractString(node.2), node.2)`;
  const shown = `arrayMap(node -> (node.1, if(${isNested}, NULL, ${leaf})),
    arrayFilter(node -> NOT startsWith(node.2, '[') OR node.2 = '[]', acc.2))`;
  const expanded = `arrayFlatten(arrayMap(node -> multiIf(
    startsWith(node.2, '{'), arrayMap(pair -> (concat(node.1, '.', pair.1), pair.2), JSONExtractKeysAndValuesRaw(node.2)),
    startsWith(node.2, '['), arrayMap(item -> (node.1, item), JSONExtractArrayRaw(node.2)),
    CAST([] AS Array(Tuple(String, String)))), acc.2))`;
  const levels = `range(toUInt16(least(${maxKeyDepth}, countSubstrings(${json}, '{') + countSubstrings(${json}, '['))))`;
  return `arrayFold((acc, level) -> (arrayConcat(acc.1, ${shown}), ${expanded}), ${levels},
    (CAST([] AS Array(Tuple(String, Nullable(String)))), JSONExtractKeysAndValuesRaw(${json}))).1`;
}

/**
 * Functions for decimals in text form without exponent, such as `0.0000012`. Costs and prices are stored and returned
 * in this form.
 */

/** Matches a decimal with an optional exponent. Groups: sign, whole part, fraction, exponent. */
const decimalPattern = /^(-?)(\d{1,40})(?:\.(\d{1,40}))?(?:e([+-]?\d{1,3}))?$/i;
const maxWholeDigits = 20;
const maxFractionDigits = 20;

/**
 * Formats a number or a decimal in text form. Returns undefined if the value is neither, if its absolute value is not
 * below 10^20, or if it is text with more than 20 digits after the point. A number with more than 20 digits after the
 * point is rounded.
 */
export function formatDecimal(value: unknown): string | undefined {
  if (typeof value === 'string') return expandExponent(value);
  if (typeof value !== 'number' || !Number.isFinite(value) || Math.abs(value) >= 1e20) return undefined;
  return expandExponent(String(value)) ?? value.toFixed(maxFractionDigits).replace(/\.?0+$/, '');
}

/** Adds two decimals in the form that {@link formatDecimal} returns. */
export function addDecimals(left: string, right: string): string {
  const digits = Math.max(countFractionDigits(left), countFractionDigits(right));
  return formatScaled(scaleDecimal(left, digits) + scaleDecimal(right, digits), digits);
}

/** Formats an integer whose last `digits` digits are after the point, without zeros at the end. */
export function formatScaled(value: bigint, digits: number): string {
  if (digits === 0) return value.toString();
  const text = (value < 0n ? -value : value).toString().padStart(digits + 1, '0');
  return `${value < 0n ? '-' : ''}${trimZeros(`${text.slice(0, -digits)}.${text.slice(-digits)}`)}`;
}

/** Divides a decimal that is not negative: 2.5 yields 0.0000025. */
export function divideByMillion(text: string): string {
  const [whole = '0', fraction = ''] = text.split('.');
  const digits = whole.padStart(7, '0');
  return trimZeros(`${digits.slice(0, -6)}.${digits.slice(-6)}${fraction}`);
}

const trimZeros = (text: string) => text.replace(/\.?0+$/, '');

function expandExponent(text: string): string | undefined {
  const [, sign, whole = '', fraction = '', exponent] = decimalPattern.exec(text) ?? [];
  if (sign === undefined) return undefined;
  if (exponent === undefined) {
    return whole.length > maxWholeDigits || fraction.length > maxFractionDigits ? undefined : text;
  }
  const point = whole.length + Number(exponent);
  const digits = `${'0'.repeat(Math.max(0, 1 - point))}${whole}${fraction}`.padEnd(point, '0');
  const at = Math.max(point, 1);
  const [left, right] = [digits.slice(0, at).replace(/^0+(?=\d)/, ''), digits.slice(at).replace(/0+$/, '')];
  if (left.length > maxWholeDigits || right.length > maxFractionDigits) return undefined;
  return `${sign}${left}${right === '' ? '' : `.${right}`}`;
}

function countFractionDigits(text: string): number {
  return text.split('.')[1]?.length ?? 0;
}

function scaleDecimal(text: string, digits: number): bigint {
  const [whole = '0', part = ''] = text.split('.');
  return BigInt(`${whole}${part.padEnd(digits, '0')}`);
}

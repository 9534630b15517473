import { useEffect, useRef } from 'react';

/**
 * Properties of an input whose value is kept elsewhere, such as in the address of the page, and changes only after a key was
 * pressed: an input that always shows the value would move the caret to its end, and discard a date of which only a part is
 * typed. The input follows changes that happen while it does not have the focus, for example after going back.
 */
export function useAddressValue(value: string | number | undefined) {
  const ref = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const { current } = ref;
    if (current && current !== document.activeElement) current.value = String(value ?? '');
  }, [value]);
  return { ref, defaultValue: value };
}

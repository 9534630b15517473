import type { ComponentProps } from 'react';

/** An input for a search. The key `/` goes to it, unless it searches only a part of the screen. */
export function SearchField({
  label,
  hasShortcut = true,
  onChange,
  ...input
}: Omit<ComponentProps<'input'>, 'onChange'> & {
  readonly label: string;
  readonly hasShortcut?: boolean;
  /** Unset: the form reads the text when it is submitted. */
  readonly onChange?: (text: string) => void;
}) {
  return (
    <input
      className="input"
      type="search"
      placeholder={label}
      aria-label={label}
      data-shortcut={hasShortcut ? '/' : undefined}
      onChange={onChange && (({ target }) => onChange(target.value))}
      {...input}
    />
  );
}

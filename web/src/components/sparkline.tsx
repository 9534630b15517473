/** Small bars, oldest first, with a text for readers that do not see them. */
export function Sparkline({ values, label }: { readonly values: readonly number[]; readonly label: string }) {
  const max = Math.max(1, ...values);
  const step = 6;
  const height = 18;
  return (
    <svg className="sparkline" width={values.length * step} height={height} role="img" aria-label={label}>
      <title>{label}</title>
      {values.map((value, index) => {
        const length = value === 0 ? 1 : Math.max(2, (value / max) * height);
        return (
          <rect
            key={index}
            x={index * step}
            y={height - length}
            width={step - 2}
            height={length}
            fill={value === 0 ? 'var(--line-strong)' : 'var(--accent)'}
          />
        );
      })}
    </svg>
  );
}

#include "text.h"

#include <algorithm>
#include <stdexcept>

namespace gpt {

std::string_view story() {
  return R"(The harbour town had four tilers, and the council gave them one floor.

The floor was for the new market hall. It was to show the whole coast, from the lighthouse in the
west to the salt ponds in the east, in small square stones. No table in the town was long enough to
lay it out, and no tiler owned enough stones. So the council drew lines on the plan and said: each
of you lays a part, and when the parts are done they shall meet without a seam.

Anna took the lighthouse, Bruno the harbour, Carla the streets, and Daniel the ponds. They worked in
four sheds, and they could not see each other. A boy ran between the sheds with a basket.

At first the boy ran all day. When Anna wanted to know how blue the water was at her border, he
fetched all of Bruno's stones, so that she could look at the two that mattered. Then he carried them
back. In the evening the basket was worn through, and the floor had not grown.

"Send me only what I lack," said Anna. "I know where my part ends, and I know where yours begins. We
have the same plan. I need not ask you what you have: I can read it off the lines."

So they agreed on rules. Each part has an owner. The lines on the plan say who owns what. When two
tilers need the same stones, each keeps a copy, and a change to one is a change to both. When all
four count the stones of one colour, each counts in his own shed, and only the four sums are carried
about. And when the plan changes, every stone goes at most once, from the shed where it is to the
shed where it will be.

The boy ran less, and the floor grew faster. Soon he had time to sit on the harbour wall and watch
the boats. When the council asked for a wider floor, they did not build a longer table. They called
two more tilers, drew the lines again, and the stones that had to move were moved.

There was one bad week. Carla had numbered her streets from the left and Daniel his ponds from the
right, and nobody noticed until the two parts were to meet. From then on nobody began before all had
read out what they were about to do, and when the words were not the same they stopped at once. It
cost a breath each morning, and it saved the floor twice.

In the autumn the four parts were carried into the hall. They lay side by side, and the water of the
harbour ran into the water of the ponds, and the road from the lighthouse met the road to the
market. A child walked from west to east with her eyes on the ground and could not tell where one
shed had ended and the next begun.

"Who made it?" she asked.

"One floor," said Bruno. "Four sheds."

"And a basket," said the boy.
)";
}

Text::Text(std::string_view text) : characters_(text) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  numbers_.reserve(text.size());
  for (const char character : text) {
    numbers_.push_back(std::lower_bound(characters_.begin(), characters_.end(), character) -
                       characters_.begin());
  }
}

Batch Text::batch(std::int64_t step, std::int64_t rows, std::int64_t length) const {
  const auto places = static_cast<std::int64_t>(numbers_.size()) - length;
  if (places < 1) throw std::invalid_argument("Text::batch: the text is shorter than a row");
  auto tokens = torch::empty({rows, length}, torch::kLong);
  auto targets = torch::empty({rows, length}, torch::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    // Multiples of a large prime jump about without repeating soon.
    const std::int64_t begin = ((step * rows + row) * 7919 + 13) % places;
    const auto* from = numbers_.data() + begin;
    std::copy_n(from, length, tokens.data_ptr<std::int64_t>() + row * length);
    std::copy_n(from + 1, length, targets.data_ptr<std::int64_t>() + row * length);
  }
  return {tokens, targets};
}

}  // namespace gpt

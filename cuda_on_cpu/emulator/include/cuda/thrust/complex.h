// The complex numbers of thrust.
#pragma once
#include <complex>

namespace thrust {

template <class T>
struct complex {
  T real_part{}, imaginary_part{};
  constexpr complex(T re = T(), T im = T()) : real_part(re), imaginary_part(im) {}
  template <class U>
  constexpr complex(const complex<U>& other) : real_part(static_cast<T>(other.real())), imaginary_part(static_cast<T>(other.imag())) {}
  constexpr complex(const std::complex<T>& other) : real_part(other.real()), imaginary_part(other.imag()) {}
  constexpr operator std::complex<T>() const { return {real_part, imaginary_part}; }
  constexpr T real() const { return real_part; }
  constexpr T imag() const { return imaginary_part; }
  constexpr void real(T re) { real_part = re; }
  constexpr void imag(T im) { imaginary_part = im; }

  friend constexpr complex operator+(const complex& a, const complex& b) { return {a.real_part + b.real_part, a.imaginary_part + b.imaginary_part}; }
  friend constexpr complex operator-(const complex& a, const complex& b) { return {a.real_part - b.real_part, a.imaginary_part - b.imaginary_part}; }
  friend constexpr complex operator*(const complex& a, const complex& b) {
    return {a.real_part * b.real_part - a.imaginary_part * b.imaginary_part, a.real_part * b.imaginary_part + a.imaginary_part * b.real_part};
  }
  friend complex operator/(const complex& a, const complex& b) { return static_cast<std::complex<T>>(a) / static_cast<std::complex<T>>(b); }
  friend constexpr complex operator-(const complex& z) { return {-z.real_part, -z.imaginary_part}; }
  friend constexpr complex operator+(const complex& z) { return z; }
  friend constexpr bool operator==(const complex& a, const complex& b) { return a.real_part == b.real_part && a.imaginary_part == b.imaginary_part; }
  constexpr complex& operator+=(const complex& other) { return *this = *this + other; }
  constexpr complex& operator-=(const complex& other) { return *this = *this - other; }
  constexpr complex& operator*=(const complex& other) { return *this = *this * other; }
  complex& operator/=(const complex& other) { return *this = *this / other; }
};

template <class T>
complex<T> polar(const T& r, const T& theta = T()) { return std::polar(r, theta); }

template <class T>
T abs(const complex<T>& z) { return std::abs(static_cast<std::complex<T>>(z)); }
template <class T>
T arg(const complex<T>& z) { return std::arg(static_cast<std::complex<T>>(z)); }
template <class T>
T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }
template <class T>
complex<T> conj(const complex<T>& z) { return {z.real(), -z.imag()}; }

#define EMULATOR_COMPLEX(FUNCTION)                                                                \
  template <class T>                                                                              \
  complex<T> FUNCTION(const complex<T>& z) { return std::FUNCTION(static_cast<std::complex<T>>(z)); }
EMULATOR_COMPLEX(exp)
EMULATOR_COMPLEX(log)
EMULATOR_COMPLEX(log10)
EMULATOR_COMPLEX(sqrt)
EMULATOR_COMPLEX(sin)
EMULATOR_COMPLEX(cos)
EMULATOR_COMPLEX(tan)
EMULATOR_COMPLEX(sinh)
EMULATOR_COMPLEX(cosh)
EMULATOR_COMPLEX(tanh)
EMULATOR_COMPLEX(asin)
EMULATOR_COMPLEX(acos)
EMULATOR_COMPLEX(atan)
EMULATOR_COMPLEX(asinh)
EMULATOR_COMPLEX(acosh)
EMULATOR_COMPLEX(atanh)
#undef EMULATOR_COMPLEX
template <class T, class U>
complex<T> pow(const complex<T>& z, const U& exponent) { return std::pow(static_cast<std::complex<T>>(z), static_cast<std::complex<T>>(complex<T>(exponent))); }
template <class T, class U>
complex<U> pow(const T& base, const complex<U>& exponent) { return std::pow(base, static_cast<std::complex<U>>(exponent)); }
template <class T>
complex<T> pow(const complex<T>& z, const complex<T>& exponent) { return std::pow(static_cast<std::complex<T>>(z), static_cast<std::complex<T>>(exponent)); }

}  // namespace thrust
